"""TCC's training that is killed, as by a power cut, while rows are learned from, and while clusters are."""

import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

from coterie import TCC
from coterie.checkpoint import load_checkpoint
from coterie.progress import Progress
from tests.training.toy import in_process, wait_for_step

pytestmark = pytest.mark.skipif(
    "forkserver" not in multiprocessing.get_all_start_methods(), reason="processes start too slowly here"
)

BEGINS = {"rows": 0, "clusters-1": 24, "clusters-2": 36, "clusters-3": 48}
"""Steps before each part; they are 60 in all, and the state is saved after every third of a part."""
PAUSE = 0.5
"""Seconds of a step from when the blow is due: long enough that it does not come too late."""


def model(**parameters: Any) -> TCC:
    small: dict[str, Any] = {"channels": 8, "settings": {"width": 16, "hidden": 16}}
    return TCC(3, epochs=20, batch_size=20, beginnings=3, warm_up=0.4, random_state=0, **small, **parameters)


def rows() -> np.ndarray[Any, np.dtype[np.float64]]:
    X: np.ndarray[Any, np.dtype[np.float64]] = make_blobs(60, centers=3, n_features=8, random_state=0)[0]
    return X


def fit_slowly(folder: Path, quick: int) -> None:
    """Train in a process that is to be killed: quickly for so many steps, then slowly."""

    def pause(progress: Progress) -> None:
        if progress.step >= quick:
            time.sleep(PAUSE)

    model(folder=folder, on_progress=pause).fit(rows())


@pytest.fixture(scope="module")
def unbroken() -> TCC:
    return model().fit(rows())


@pytest.mark.parametrize(("part", "step"), [("rows", 8), ("clusters-1", 2), ("clusters-2", 5)])
def test_a_fit_that_is_killed_and_called_again_ends_like_an_unbroken_one(
    part: str, step: int, unbroken: TCC, tmp_path: Path
) -> None:
    """Once so soon after clusters were begun that nothing is saved of them, and they are begun again."""
    folder = tmp_path / "run"
    process = in_process(fit_slowly, folder, BEGINS[part] + step)
    wait_for_step(step, folder / part, process)
    process.kill()
    process.join()
    assert process.exitcode == -9
    assert [name for name in BEGINS if (folder / name).exists()][-1] == part
    saved = steps_saved(folder / part)
    assert step // 3 * 3 <= saved < 12
    heard: list[Progress] = []
    again = model(folder=folder, on_progress=heard.append).fit(rows())
    assert (heard[0].step, heard[-1].step) == (BEGINS[part] + saved + 1, 60)
    theirs = unbroken.model_.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in again.model_.state_dict().items())
    assert again.history_ == unbroken.history_
    np.testing.assert_array_equal(again.probabilities_, unbroken.probabilities_)


def steps_saved(folder: Path) -> int:
    path = folder / "state.safetensors"
    return int(load_checkpoint(path)[1]["step"]) if path.exists() else 0
