"""Two processes that train one model."""

import math
import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Generator, Tensor

from coterie.errors import TrainingError
from coterie.training import distributed as parallel
from coterie.training.loop import train
from tests.training.toy import (
    CASES,
    Share,
    Toy,
    all_end_well,
    assert_equal,
    draws,
    in_process,
    log_of,
    run,
    run_together,
    wait_for_step,
    weights_in,
)

pytestmark = pytest.mark.skipif(
    "forkserver" not in multiprocessing.get_all_start_methods(), reason="processes start too slowly here"
)
CONFIG = replace(CASES["all"], accumulate=1, keep_best="error")


def run_both(folder: Path, meeting: Path, shares: tuple[Share, Share] = (Share(), Share())) -> list[str]:
    """What two processes have to say in the end; that of both is nothing if all went well."""
    processes = [in_process(run_together, rank, folder, meeting, CONFIG, share) for rank, share in enumerate(shares)]
    all_end_well(processes)
    return [meeting.with_suffix(f".{rank}.txt").read_text() for rank in (0, 1)]


def ends(meeting: Path) -> list[dict[str, Tensor]]:
    """Weights that each of the two ended with."""
    return [weights_in(meeting.with_suffix(f".{rank}")) for rank in (0, 1)]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run of two that nothing stopped, with their last weights beside it."""
    folder = tmp_path_factory.mktemp("together") / "run"
    assert run_both(folder, folder.with_name("meeting")) == ["", ""]
    return folder


def test_both_end_as_one_that_took_the_batches_of_both(unbroken: Path, tmp_path: Path) -> None:
    """The mean gradient is the same to the last bit, since halves are exact."""
    sources = [Generator().manual_seed(rank) for rank in (0, 1)]

    def alternating() -> Iterator[Tensor]:
        for pair in zip(*map(draws, sources), strict=False):
            yield from pair

    model = Toy(seed=0, noise=0.0)
    alone = replace(CONFIG, accumulate=2)
    train(model, alternating(), alone, generator=Generator(), evaluate=model.evaluate, folder=tmp_path)
    first, second = ends(unbroken.with_name("meeting"))
    assert_equal(first, second)
    assert_equal(first, model.state_dict())
    for ours, theirs in zip(log_of(unbroken), log_of(tmp_path), strict=True):
        evaluations = [line.pop("evaluation", None) for line in (ours, theirs)]
        assert ours == theirs
        if evaluations[0] is not None:
            assert evaluations[0] == {"error": pytest.approx(evaluations[1]["error"] + 0.5), "rank": 0.5}


def test_two_that_are_killed_go_on_together(unbroken: Path, tmp_path: Path) -> None:
    folder, meeting = tmp_path / "run", tmp_path / "again"
    slow = Share(pause=0.005)
    processes = [in_process(run_together, rank, folder, tmp_path / "first", CONFIG, slow) for rank in (0, 1)]
    wait_for_step(9, folder, processes[0])
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
    assert processes[0].exitcode == -9
    assert run_both(folder, meeting) == ["", ""]
    for end in ends(meeting):
        assert_equal(end, ends(unbroken.with_name("meeting"))[0])
    assert log_of(folder) == log_of(unbroken)


def test_both_stop_when_one_runs_out_of_batches_or_meets_no_number(tmp_path: Path) -> None:
    folder, meeting = tmp_path / "run", tmp_path / "meeting"
    assert run_both(folder, meeting, (Share(n_batches=9), Share(n_batches=7))) == ["", ""]
    assert [line["step"] for line in log_of(folder)] == list(range(1, 8))
    assert_equal(*ends(meeting))
    said = run_both(tmp_path / "other", tmp_path / "another", (Share(), Share(spoilt=3)))
    for message in said:
        assert "step 4 of 23 (error = nan, size = 0." in message


def test_a_run_of_two_is_not_continued_by_one(unbroken: Path) -> None:
    with pytest.raises(TrainingError, match=r"a run of 2 processes, and these are 1. Start as many"):
        run(unbroken, CONFIG)


def test_one_process_is_its_own_mean() -> None:
    assert parallel.n_processes() == 1
    assert parallel.leads()
    numbers = {"b": 2.0, "a": math.inf}
    assert parallel.mean_over_processes(numbers) == numbers
    assert parallel.all_agree(own=True)
    assert not parallel.all_agree(own=False)
    state = Generator().get_state()
    assert parallel.own_row(parallel.gather(state)).equal(state)
