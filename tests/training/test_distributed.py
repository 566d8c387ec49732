"""Two processes that train one model with DistributedDataParallel."""

import math
import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Generator, Tensor

from coterie.errors import TrainingError
from coterie.training.distributed import all_gather, rank, reduce_mean, world_size
from coterie.training.loop import train
from tests.training import toy

pytestmark = pytest.mark.skipif(
    "forkserver" not in multiprocessing.get_all_start_methods(), reason="processes start too slowly here"
)
CONFIG = replace(toy.CASES["all"], accumulate=1, keep_best="error")


def run_both(
    folder: Path, meeting: Path, workers: tuple[toy.Worker, toy.Worker] = (toy.Worker(), toy.Worker())
) -> list[str]:
    """Return the error messages of two processes, empty if they succeeded."""
    toy.join_all(
        [toy.in_process(toy.run_together, rank, folder, meeting, CONFIG, one) for rank, one in enumerate(workers)]
    )
    return [meeting.with_suffix(f".{rank}.txt").read_text() for rank in (0, 1)]


def ends(meeting: Path) -> list[dict[str, Tensor]]:
    """Return the final weights of both processes."""
    return [toy.weights_in(meeting.with_suffix(f".{rank}")) for rank in (0, 1)]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an uninterrupted run of two processes, with their final weights beside it."""
    folder = tmp_path_factory.mktemp("together") / "run"
    assert run_both(folder, folder.with_name("meeting")) == ["", ""]
    return folder


def test_two_processes_equal_one_that_accumulates_the_batches_of_both(uninterrupted: Path, tmp_path: Path) -> None:
    """Bit for bit, since halves are exact in floating point."""
    sources = [Generator().manual_seed(rank) for rank in (0, 1)]

    def alternating() -> Iterator[Tensor]:
        for pair in zip(*map(toy.batches_from, sources), strict=False):
            yield from pair

    model = toy.Toy(seed=0, noise=0.0)
    alone = replace(CONFIG, accumulate=2)
    train(model, alternating(), alone, generator=Generator(), evaluate=model.evaluate, folder=tmp_path)
    first, second = ends(uninterrupted.with_name("meeting"))
    toy.assert_equal(first, second)
    toy.assert_equal(first, model.state_dict())
    for ours, theirs in zip(toy.log_of(uninterrupted), toy.log_of(tmp_path), strict=True):
        evaluations = [line.pop("evaluation", None) for line in (ours, theirs)]
        assert ours == theirs
        if evaluations[0] is not None:
            assert evaluations[0] == {"error": pytest.approx(evaluations[1]["error"] + 0.5), "rank": 0.5}


def test_two_processes_resume_after_being_killed(uninterrupted: Path, tmp_path: Path) -> None:
    folder, meeting = tmp_path / "run", tmp_path / "again"
    slow = toy.Worker(pause=0.005)
    processes = [toy.in_process(toy.run_together, rank, folder, tmp_path / "first", CONFIG, slow) for rank in (0, 1)]
    toy.wait_for_step(9, folder, processes[0])
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
    assert processes[0].exitcode == -9
    assert run_both(folder, meeting) == ["", ""]
    for end in ends(meeting):
        toy.assert_equal(end, ends(uninterrupted.with_name("meeting"))[0])
    assert toy.log_of(folder) == toy.log_of(uninterrupted)


def test_both_processes_stop_when_one_has_no_more_batches_or_a_nan_loss(tmp_path: Path) -> None:
    folder, meeting = tmp_path / "run", tmp_path / "meeting"
    assert run_both(folder, meeting, (toy.Worker(n_batches=9), toy.Worker(n_batches=7))) == ["", ""]
    assert [line["step"] for line in toy.log_of(folder)] == list(range(1, 8))
    toy.assert_equal(*ends(meeting))
    for message in run_both(tmp_path / "other", tmp_path / "another", (toy.Worker(), toy.Worker(nan_batch=3))):
        assert "step 4 of 23 (error = nan, size = 0." in message


def test_single_processes_average_alone_and_cannot_resume_a_run_of_two(uninterrupted: Path) -> None:
    with pytest.raises(TrainingError, match=r"a run of 2 processes, not of 1. Start the same number"):
        toy.run(uninterrupted, CONFIG)
    assert (world_size(), rank()) == (1, 0)
    numbers = {"b": 2.0, "a": math.inf}
    assert reduce_mean(numbers) == numbers
    state = Generator().get_state()
    assert all_gather(state)[0].equal(state)
