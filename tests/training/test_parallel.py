"""Two processes that train one model."""

import math
import multiprocessing
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor, nn

from coterie.errors import TrainingError
from coterie.training import parallel, train
from tests.training.toy import (
    CASES,
    Toy,
    assert_equal,
    draws,
    in_process,
    log_of,
    run,
    run_together,
    weights_in,
)

pytestmark = pytest.mark.skipif(
    "forkserver" not in multiprocessing.get_all_start_methods(), reason="processes start too slowly here"
)
CONFIG = replace(CASES["all"], accumulate=1)
ENOUGH = 1000


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Tensor]]:
    """Folder of a run of two that nothing stopped, and the weights that both ended with."""
    folder = tmp_path_factory.mktemp("together")
    return folder, both(folder)


def both(folder: Path, *, n_batches: tuple[int, int] = (ENOUGH, ENOUGH), stop_after: float = math.inf) -> dict[str, Tensor]:
    """Weights that two processes end with, or none if they were stopped."""
    meeting = folder.with_suffix(f".{len(list(folder.parent.iterdir()))}")
    processes = [
        in_process(run_together, rank, folder, meeting, CONFIG, n_batches[rank], 0.0 if stop_after == math.inf else 0.01)
        for rank in (0, 1)
    ]
    for process in processes:
        process.join(None if stop_after == math.inf else stop_after)
    return {}
