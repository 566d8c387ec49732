"""Training that is killed, as by a power cut, at moments that nobody chose."""

import multiprocessing
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from coterie.checkpoint import load_checkpoint
from tests.training.toy import CASES, assert_equal, in_process, log_of, run, run_slowly, wait_for_step, weights_in

pytestmark = pytest.mark.skipif(
    "forkserver" not in multiprocessing.get_all_start_methods(), reason="processes start too slowly here"
)


@pytest.mark.parametrize(("case", "save_every", "kills"), [("all", 1, 7), ("best", 9, 5)])
def test_a_run_that_is_killed_again_and_again_ends_like_an_unbroken_one(
    case: str, save_every: int, kills: int, tmp_path: Path
) -> None:
    """Once it does little but save, once most of what it did since the last time is lost."""
    config = replace(CASES[case], steps=90, save_every=save_every)
    unbroken = run(tmp_path / "unbroken", config)
    folder = tmp_path / "killed"
    chance = random.Random(case)  # noqa: S311  (any moment will do)
    saved = [0]
    for _ in range(kills):
        process = in_process(run_slowly, folder, config, 0.003)
        wait_for_step(saved[-1] + chance.randint(0, 12), folder, process)
        time.sleep(chance.uniform(0.0, 0.01))
        process.kill()
        process.join()
        assert process.exitcode in {-9, 0}
        saved.append(steps_saved(folder))
        if process.exitcode == 0:  # a machine so busy that the blow came too late
            break
    assert len(saved) > 2
    assert saved == sorted(saved)
    last = in_process(run_slowly, folder, config, 0.0)
    last.join()
    assert last.exitcode == 0
    assert_equal(weights_in(folder / "end.safetensors"), unbroken.state_dict())
    assert log_of(folder) == log_of(tmp_path / "unbroken")
    assert {path.name for path in folder.iterdir()} == {"state.safetensors", "log.jsonl", "end.safetensors"}


def steps_saved(folder: Path) -> int:
    path = folder / "state.safetensors"
    return int(load_checkpoint(path)[1]["step"]) if path.exists() else 0
