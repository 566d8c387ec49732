"""All that training needs to go on as if it had never stopped, as one file that is always whole; and its log.

Of several processes, one alone writes.
"""

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
from coterie.training.distributed import gather, leads, n_processes, own_row

STATE_FILE = "state.safetensors"
LOG_FILE = "log.jsonl"
CLAIM_FILE = "recipe.json"
"""What the run in a folder is of."""


@dataclass(slots=True)
class Best:
    """The best weights so far, by an evaluation."""

    value: float = float("inf")
    misses: int = 0
    """Evaluations since then."""
    weights: dict[str, Tensor] = field(default_factory=dict)


def claim(folder: Path, run: Mapping[str, Any]) -> None:
    """Make the folder, note what the run in it is of, and refuse a folder that has another run.

    Parameters
    ----------
    folder : Path
        Of the run.
    run : mapping
        All that decides what is computed, as JSON holds it.

    Raises
    ------
    OutputError
        If there can be no such folder.
    TrainingError
        If it holds a run of something else, or one of which nothing is noted.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{str(folder)!r} cannot be a folder for the run: {error.strerror or error}.") from error
    ours = dict(_flattened(json.loads(json.dumps(run))))
    path = folder / CLAIM_FILE
    if path.exists():
        theirs = json.loads(path.read_text(encoding="utf-8"))
        unlike = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
        if unlike:
            raise TrainingError(
                f"{str(folder)!r} holds another run; they differ in {', '.join(unlike)}. "
                "Use what it was begun with, or another folder."
            )
    elif (folder / STATE_FILE).exists():
        raise TrainingError(
            f"{str(folder)!r} holds a run, and no {CLAIM_FILE} that says what it is of. Use another folder."
        )
    if leads():
        write_atomically(path, json.dumps(ours, indent=2, sort_keys=True) + "\n", force=True)


def save_state(
    folder: Path,
    step: int,
    weights: Mapping[str, Tensor],
    optimiser: torch.optim.Optimizer,
    generator: Generator,
    best: Best,
    settings: Mapping[str, Any],
) -> None:
    """Write where training stands after so many steps, in place of what was written before."""
    generators = gather(generator.get_state())
    if not leads():
        return
    tensors = {f"weights.{name}": value for name, value in weights.items()}
    tensors |= {f"best.{name}": value for name, value in best.weights.items()}
    tensors["generators"] = generators
    for position, values in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{position}.{name}": value for name, value in values.items()}
    card = {
        "step": step,
        "settings": dict(settings),
        "misses": best.misses,
        "best": best.value if best.weights else None,
    }
    save_checkpoint(folder / STATE_FILE, tensors, card, force=True)


def load_state(
    folder: Path,
    weights: Mapping[str, Tensor],
    optimiser: torch.optim.Optimizer,
    generator: Generator,
    best: Best,
    settings: Mapping[str, Any],
) -> tuple[int, dict[str, Tensor]] | None:
    """Number of steps done and the weights after them; None if nothing was saved yet. The rest is put in place."""
    path = folder / STATE_FILE
    if not path.exists():
        return None
    mapped, card = load_checkpoint(path)
    tensors = {name: value.clone() for name, value in mapped.items()}  # else they would lie in the file to be replaced
    _refuse_other_runs(folder, tensors, card, weights, settings)
    generator.set_state(own_row(tensors["generators"]))
    groups = optimiser.state_dict()["param_groups"]
    states = {position: _part(tensors, f"optimiser.{position}.") for position in groups[0]["params"]}
    optimiser.load_state_dict(
        {"param_groups": groups, "state": {position: values for position, values in states.items() if values}}
    )
    if card["best"] is not None:
        best.value, best.weights = card["best"], _part(tensors, "best.")
    best.misses = card["misses"]
    return card["step"], _part(tensors, "weights.")


def tidy(folder: Path, step: int) -> None:
    """Remove what an interrupted run left: files half written, and log lines after the step to go on from or cut short.

    Parameters
    ----------
    folder : Path
        Of the run.
    step : int
        Steps that the saved state has done.
    """
    if not leads():
        return
    for unfinished in (*folder.glob(f".{STATE_FILE}.*.part"), *folder.glob(f".{LOG_FILE}.*.part")):
        unfinished.unlink()
    path = folder / LOG_FILE
    if path.exists():
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        kept = [line for line in lines if _logged_step(line) <= step]
        write_atomically(path, "".join(f"{line}\n" for line in kept), force=True)


def append_log(folder: Path, line: Mapping[str, Any]) -> None:
    """Add a line to the log."""
    if leads():
        with (folder / LOG_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")


def logged(folder: Path) -> Iterator[dict[str, Any]]:
    """Lines of a run's log, if there is one."""
    path = folder / LOG_FILE
    if path.exists():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def _refuse_other_runs(
    folder: Path,
    tensors: Mapping[str, Tensor],
    card: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    settings: Mapping[str, Any],
) -> None:
    theirs, ours = card["settings"], json.loads(json.dumps(dict(settings)))
    if theirs != ours:
        changed = sorted(
            name for name in {*theirs, *ours} if name not in theirs or name not in ours or theirs[name] != ours[name]
        )
        raise TrainingError(
            f"{str(folder)!r} holds a run with other settings ({', '.join(changed)}). "
            "Use the settings that it was begun with, or another folder."
        )
    shapes = {name: tuple(value.shape) for name, value in _part(tensors, "weights.").items()}
    wanted = {name: tuple(value.shape) for name, value in weights.items()}
    if shapes != wanted:
        unlike = sorted(name for name in {*shapes, *wanted} if shapes.get(name) != wanted.get(name))
        raise TrainingError(
            f"{str(folder)!r} holds a run of another model (look at {', '.join(unlike[:3])}). "
            "Use the model that it was begun with, or another folder."
        )
    if len(tensors["generators"]) != n_processes():
        raise TrainingError(
            f"{str(folder)!r} holds a run of {len(tensors['generators'])} processes, and these are {n_processes()}. "
            "Start as many as it was begun with, or use another folder."
        )


def _flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted names."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _logged_step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
