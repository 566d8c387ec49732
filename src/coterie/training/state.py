"""The saved state and the log of a training run; of several processes, only that of rank 0 writes."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.errors import OutputError, TrainingError
from coterie.files import write_atomically
from coterie.nn.model import Trainable, to_arrays, to_tensors
from coterie.training.distributed import all_gather, rank, world_size

STATE_FILE = "state.safetensors"
LOG_FILE = "log.jsonl"
RUN_FILE = "recipe.json"  # settings of the run in a folder


@dataclass(slots=True)
class Best:
    """The best weights so far, by an evaluation."""

    value: float = float("inf")
    misses: int = 0  # evaluations since then
    weights: dict[str, Tensor] = field(default_factory=dict)


def open_run(folder: Path, settings: Mapping[str, Any]) -> None:
    """Create the folder of a run and note its settings, which are JSON values; reject a folder with another run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"The folder {str(folder)!r} for the run cannot be created: {error.strerror or error}."
        ) from error
    ours = dict(_flatten(json.loads(json.dumps(settings))))
    path = folder / RUN_FILE
    if path.exists():
        changed = _changed_keys(json.loads(path.read_text(encoding="utf-8")), ours)
        if changed:
            raise TrainingError(
                f"{str(folder)!r} holds another run; they differ in {', '.join(changed)}. "
                "Use the same settings, or another folder."
            )
    elif (folder / STATE_FILE).exists():
        raise TrainingError(f"{str(folder)!r} holds a run, but no {RUN_FILE} with its settings. Use another folder.")
    if rank() == 0:
        write_atomically(path, json.dumps(ours, indent=2, sort_keys=True) + "\n", force=True)


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Everything that changes during training and is saved."""

    folder: Path
    model: Trainable[Any]
    optimiser: torch.optim.Optimizer
    generator: Generator
    best: Best
    settings: Mapping[str, Any]  # must be the same when training resumes

    def save(self, step: int) -> None:
        """Replace the saved state by that after ``step`` steps."""
        generators = all_gather(self.generator.get_state())
        if rank() > 0:
            return
        tensors = {f"weights.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.best.weights.items()}
        tensors["generators"] = generators
        for position, values in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{position}.{name}": value for name, value in values.items()}
        best = self.best.value if self.best.weights else None
        card = {"step": step, "settings": dict(self.settings), "misses": self.best.misses, "best": best}
        save_checkpoint(self.folder / STATE_FILE, to_arrays(tensors), card, force=True)

    def load(self) -> int:
        """Restore the saved state, and return the number of steps done; 0 if no state was saved."""
        path = self.folder / STATE_FILE
        if not path.exists():
            return 0
        arrays, card = load_checkpoint(path)
        tensors = to_tensors(arrays)
        weights = _select(tensors, "weights.")
        self._check_same_run(weights, len(tensors["generators"]), card["settings"])
        self.model.load_state_dict(weights)
        self.generator.set_state(tensors["generators"][rank()].clone())  # a view crashes the generator
        groups = self.optimiser.state_dict()["param_groups"]
        states = {position: _select(tensors, f"optimiser.{position}.") for position in groups[0]["params"]}
        self.optimiser.load_state_dict(
            {"param_groups": groups, "state": {position: values for position, values in states.items() if values}}
        )
        if card["best"] is not None:
            self.best.value, self.best.weights = card["best"], _select(tensors, "best.")
        self.best.misses = card["misses"]
        return int(card["step"])

    def _check_same_run(self, weights: Mapping[str, Tensor], n_processes: int, settings: Mapping[str, Any]) -> None:
        folder = repr(str(self.folder))
        changed = _changed_keys(settings, json.loads(json.dumps(dict(self.settings))))
        if changed:
            raise TrainingError(
                f"{folder} holds a run with other settings ({', '.join(changed)}). "
                "Use the same settings, or another folder."
            )
        saved, ours = (
            {name: value.shape for name, value in tensors.items()} for tensors in (weights, self.model.state_dict())
        )
        changed = _changed_keys(saved, ours)
        if changed:
            raise TrainingError(
                f"{folder} holds a run of another model; tensors such as {', '.join(changed[:3])} differ. "
                "Use the same model, or another folder."
            )
        if n_processes != world_size():
            raise TrainingError(
                f"{folder} holds a run of {n_processes} processes, not of {world_size()}. "
                "Start the same number of processes, or use another folder."
            )


def clean_up(folder: Path, step: int) -> None:
    """Remove partly written files, and log lines that are incomplete or later than the saved step."""
    if rank() > 0:
        return
    for unfinished in (*folder.glob(f".{STATE_FILE}.*.part"), *folder.glob(f".{LOG_FILE}.*.part")):
        unfinished.unlink()
    path = folder / LOG_FILE
    if path.exists():
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        kept = [line for line in lines if _logged_step(line) <= step]
        write_atomically(path, "".join(f"{line}\n" for line in kept), force=True)


def append_log(folder: Path, line: Mapping[str, Any]) -> None:
    """Append a line to the log."""
    if rank() == 0:
        with (folder / LOG_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")


def read_log(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of the log of a run, if there is one."""
    path = folder / LOG_FILE
    if path.exists():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def _changed_keys(saved: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in {*saved, *ours} if saved.get(key) != ours.get(key))


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings by their dotted names."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _logged_step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


def _select(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
