"""An interrupted run ends like an uninterrupted one."""

import json
import math
import multiprocessing
import os
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Generator, nn

from coterie.checkpoint import load_checkpoint
from coterie.errors import OutputError, TrainingError, WeightsError
from coterie.nn.model import Loss
from coterie.progress import Progress
from coterie.training.loop import TrainConfig
from tests.training.toy import CASES, Toy, assert_equal, in_process, log_of, run, run_slowly, wait_for_step, weights_in

EACH_CASE = pytest.mark.parametrize("case", CASES)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Toy]]:
    """For every case the folder and the model of an uninterrupted run."""
    folders = {name: tmp_path_factory.mktemp(name) for name in CASES}
    return {name: (folder, run(folder, CASES[name])) for name, folder in folders.items()}


class StoppedError(Exception):
    """Interrupts these runs."""


def run_until(step: int, folder: Path, config: TrainConfig) -> None:
    """Train until a step is done."""

    def stop(progress: Progress) -> None:
        if progress.step == step:
            raise StoppedError

    with pytest.raises(StoppedError):
        run(folder, config, callback=stop)


@EACH_CASE
@pytest.mark.parametrize("stops", [[1], [4], [23], [2, 10, 11, 11, 20], range(1, 24)], ids=str)
@pytest.mark.usefixtures("untouched_random_state")
def test_an_interrupted_run_ends_like_an_uninterrupted_one(
    case: str, stops: list[int], uninterrupted: dict[str, tuple[Path, Toy]], tmp_path: Path
) -> None:
    folder, model = uninterrupted[case]
    for step in stops:
        run_until(step, tmp_path, CASES[case])
    assert_equal(run(tmp_path, CASES[case]).state_dict(), model.state_dict())
    assert log_of(tmp_path) == log_of(folder)
    states = [path / "state.safetensors" for path in (tmp_path, folder)]
    assert states[0].read_bytes() == states[1].read_bytes()


@EACH_CASE
def test_the_folder_does_not_change_the_result(case: str, uninterrupted: dict[str, tuple[Path, Toy]]) -> None:
    assert_equal(uninterrupted[case][1].state_dict(), run(None, CASES[case]).state_dict())


@EACH_CASE
def test_a_finished_run_is_not_repeated(case: str, uninterrupted: dict[str, tuple[Path, Toy]]) -> None:
    folder, finished = uninterrupted[case]
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = run(folder, CASES[case], model=Toy(seed=5), seed=7)
    assert_equal(again.state_dict(), finished.state_dict())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert before.keys() == {"state.safetensors", "log.jsonl"}


def test_the_best_weights_survive_an_interruption(tmp_path: Path) -> None:
    """The learning rate is so large that the error rises again."""
    config = replace(CASES["best"], schedule="constant", learning_rate=1.0)
    run_until(22, tmp_path, config)
    model = run(tmp_path, config)
    errors = {line["step"]: line["evaluation"]["error"] for line in log_of(tmp_path) if "evaluation" in line}
    best = min(errors, key=errors.__getitem__)
    assert best < 21
    assert int(model.count) == best
    assert model.evaluate()["error"] == errors[best]


def test_patience_survives_an_interruption(tmp_path: Path) -> None:
    config = replace(CASES["best"], steps=300, schedule="constant", learning_rate=1.0, patience=3, save_every=4)
    uninterrupted = run(tmp_path / "uninterrupted", config)
    last = log_of(tmp_path / "uninterrupted")[-1]["step"]
    assert last < 300
    for step in (last - 4, last - 1, last):
        run_until(step, tmp_path / "interrupted", config)
    for _ in range(2):
        assert_equal(run(tmp_path / "interrupted", config).state_dict(), uninterrupted.state_dict())
        assert log_of(tmp_path / "interrupted") == log_of(tmp_path / "uninterrupted")


def test_the_log_has_a_line_per_step(tmp_path: Path) -> None:
    seen: list[Progress] = []
    run(tmp_path / "new" / "folder", CASES["all"], callback=seen.append)
    lines = [json.loads(line) for line in (tmp_path / "new" / "folder" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 24))
    for line, progress in zip(lines, seen, strict=True):
        assert (line["loss"], line["parts"]) == (progress.loss, progress.parts)
        assert line["parts"].keys() == {"error", "size"}
        assert line["loss"] == pytest.approx(sum(line["parts"].values()))
        assert line["seconds"] == pytest.approx(progress.seconds, abs=1e-3)
        assert line.get("evaluation") == progress.evaluation
    assert [line["step"] for line in lines if "evaluation" in line] == [4, 8, 12, 16, 20, 23]
    assert lines[0]["rate"] == pytest.approx(0.04 * 0.05)


def test_progress_counts_from_the_resumed_step(tmp_path: Path) -> None:
    run_until(12, tmp_path, CASES["plain"])
    seen: list[Progress] = []
    run(tmp_path, CASES["plain"], callback=seen.append)
    assert [progress.step for progress in seen] == list(range(11, 24))
    assert {progress.resumed_at for progress in seen} == {10}
    assert seen[0].seconds_left == pytest.approx(seen[0].seconds * 12)


@pytest.mark.parametrize("rest", ['{"step": 13, "lo', "\0\0", "5", '{"loss": 1}', "é"])
def test_incomplete_lines_are_dropped(rest: str, uninterrupted: dict[str, tuple[Path, Toy]], tmp_path: Path) -> None:
    run_until(12, tmp_path, CASES["plain"])
    with (tmp_path / "log.jsonl").open("ab") as file:
        file.write(rest.encode("latin-1"))
    run(tmp_path, CASES["plain"])
    assert log_of(tmp_path) == log_of(uninterrupted["plain"][0])


def test_a_run_without_a_state_starts_again(uninterrupted: dict[str, tuple[Path, Toy]], tmp_path: Path) -> None:
    run_until(12, tmp_path, CASES["plain"])
    (tmp_path / "state.safetensors").unlink()
    run(tmp_path, CASES["plain"])
    assert log_of(tmp_path) == log_of(uninterrupted["plain"][0])


def test_only_partly_written_files_are_removed(tmp_path: Path) -> None:
    run_until(12, tmp_path, CASES["plain"])
    (tmp_path / ".state.safetensors.0123abcd.part").write_bytes(b"half")
    (tmp_path / ".log.jsonl.0123abcd.part").write_bytes(b"half")
    (tmp_path / "notes.part").write_text("mine")
    run(tmp_path, CASES["plain"])
    assert {path.name for path in tmp_path.iterdir()} == {"state.safetensors", "log.jsonl", "notes.part"}


def test_a_failed_write_leaves_the_previous_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CASES["plain"]
    uninterrupted = run(tmp_path / "uninterrupted", config)
    run_until(7, tmp_path, config)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OutputError, match="No space left"):
            run(tmp_path, config)
    assert load_checkpoint(tmp_path / "state.safetensors")[1]["step"] == 5
    assert_equal(run(tmp_path, config).state_dict(), uninterrupted.state_dict())


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"learning_rate": 0.1}, "learning_rate"), ({"betas": (0.8, 0.9), "steps": 30}, "betas, steps")],
)
def test_other_settings_are_rejected(changes: dict[str, object], named: str, tmp_path: Path) -> None:
    run_until(12, tmp_path, CASES["plain"])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(TrainingError, match=rf"other settings \({named}\).*another folder"):
        run(tmp_path, replace(CASES["plain"], **changes))  # type: ignore[arg-type]  # of any field
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_models_and_damaged_states_are_rejected(tmp_path: Path) -> None:
    run_until(12, tmp_path, CASES["plain"])
    model = Toy()
    model.outer = nn.Parameter(torch.zeros(5))
    with pytest.raises(TrainingError, match=r"another model; tensors such as outer differ"):
        run(tmp_path, CASES["plain"], model=model)
    run_until(12, tmp_path, CASES["plain"])
    path = tmp_path / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(WeightsError, match="truncated"):
        run(tmp_path, CASES["plain"])


def test_the_format_of_the_state(tmp_path: Path) -> None:
    """The next version must be able to resume runs of this one."""
    run_until(12, tmp_path, CASES["best"])
    arrays, card = load_checkpoint(tmp_path / "state.safetensors")
    names = {"inner", "outer", "unused", "count"}
    moments = {f"optimiser.{i}.{name}" for i in (0, 1) for name in ("step", "exp_avg", "exp_avg_sq")}
    assert set(arrays) == {f"{part}.{name}" for part in ("weights", "best") for name in names} | moments | {
        "generators"
    }
    assert arrays["generators"].shape == (1, len(Generator().get_state()))
    assert card.keys() == {"step", "settings", "misses", "best"}
    assert card["settings"].keys() == set(TrainConfig.__dataclass_fields__)
    assert card["step"] == 12


class Breaking(Toy):
    """Its loss, or a part of it, is NaN from some step on."""

    broken_from = 9
    in_part_alone = False

    def loss(self, batch: torch.Tensor, generator: Generator) -> Loss:
        loss = super().loss(batch, generator)
        if self.count + 1 < self.broken_from:
            return loss
        return Loss(loss.total * (1.0 if self.in_part_alone else math.nan), {**loss.parts, "error": math.nan})


def test_a_nan_loss_leaves_the_last_valid_state(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(TrainingError, match=r"step 9 of 23 \(error = nan, size = [\d.]+\)"):
            run(tmp_path, CASES["plain"], model=Breaking())
    assert [line["step"] for line in log_of(tmp_path)] == list(range(1, 9))
    assert all(value.isfinite().all() for value in weights_in(tmp_path / "state.safetensors").values())
    uninterrupted = run(None, CASES["plain"])
    assert_equal(run(tmp_path, CASES["plain"]).state_dict(), uninterrupted.state_dict())


def test_the_log_is_valid_json_even_with_nan(tmp_path: Path) -> None:
    model = Breaking()
    model.in_part_alone = True
    run(tmp_path, CASES["plain"], model=model)

    def fail(constant: str) -> None:
        raise AssertionError(constant)

    lines = [json.loads(line, parse_constant=fail) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["parts"]["error"] is None for line in lines] == [False] * 8 + [True] * 15


@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="processes start too slowly")
@pytest.mark.parametrize(("case", "save_every", "kills"), [("all", 1, 7), ("best", 9, 5)])
def test_runs_killed_often_end_like_uninterrupted_ones(case: str, save_every: int, kills: int, tmp_path: Path) -> None:
    """Once it saves after every step, once most steps are lost."""
    config = replace(CASES[case], steps=90, save_every=save_every)
    uninterrupted = run(tmp_path / "uninterrupted", config)
    folder = tmp_path / "killed"
    moments = random.Random(case)  # noqa: S311  (not for cryptography)
    saved = [0]
    for _ in range(kills):
        process = in_process(run_slowly, folder, config, 0.003)
        wait_for_step(saved[-1] + moments.randint(0, 12), folder, process)
        time.sleep(moments.uniform(0.0, 0.01))
        process.kill()
        process.join()
        assert process.exitcode in {-9, 0}
        saved.append(steps_saved(folder))
        if process.exitcode == 0:  # on a busy machine the signal comes too late
            break
    assert len(saved) > 2
    assert saved == sorted(saved)
    last = in_process(run_slowly, folder, config, 0.0)
    last.join()
    assert last.exitcode == 0
    assert_equal(weights_in(folder / "end.safetensors"), uninterrupted.state_dict())
    assert log_of(folder) == log_of(tmp_path / "uninterrupted")
    assert {path.name for path in folder.iterdir()} == {"state.safetensors", "log.jsonl", "end.safetensors"}


def steps_saved(folder: Path) -> int:
    path = folder / "state.safetensors"
    return int(load_checkpoint(path)[1]["step"]) if path.exists() else 0
