"""``coterie learn`` from a table of sets that somebody has sorted: one row for each point of each set."""

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import numpy as np

from coterie.cli.methods import check_seed
from coterie.cli.outputs import check_outputs
from coterie.cli.progress import Narrator, time_in_words
from coterie.cli.reading import Loaded, load
from coterie.cli.requests import STEPS, LearnRequest
from coterie.cli.runs import followed
from coterie.cli.summary import has_value
from coterie.data.columns import Array, Table
from coterie.errors import InputError, TableError, WeightsError
from coterie.estimators.amcp import AMCP
from coterie.estimators.amortized import EVALUATIONS
from coterie.estimators.dac import DAC
from coterie.estimators.features import encode_tasks
from coterie.recipes import seconds_trained
from coterie.registry import file_digest, load_pretrained, pretrained_path
from coterie.training import TrainConfig
from coterie.training.state import claim

_LEARNERS: dict[str, type[DAC] | type[AMCP]] = {"dac": DAC, "amcp": AMCP}
_FROM_NOTHING = "none"


@final
@dataclass(frozen=True, eq=False)
class SortedSets:
    """Sets with the cluster of every row."""

    tasks: list[tuple[Table, Array]]
    n_features: int
    digest: str
    """Of all names and values."""
    notes: tuple[str, ...]


def learn_from_sets(request: LearnRequest, narrator: Narrator) -> None:
    """Train on the sets of a table, and say how well sets that were held out are sorted afterwards."""
    reading, writing = request.reading, request.writing
    seed, steps = request.seed or 0, STEPS if request.steps is None else request.steps
    model_path = _check(request, seed, steps)
    outputs = check_outputs(writing, [reading.file])
    with narrator.phase(f"Reading {reading.file}"):
        sets = _split(load(replace(reading, ids=request.sets)))
    for note in sets.notes:
        narrator.say(f"note: {note}")
    learner = _LEARNERS[request.method or "dac"]
    start = _start(learner, request.weights, sets.n_features, narrator)
    folder = model_path.with_suffix(".run") if request.folder is None else Path(request.folder)
    claim(
        folder,
        {"method": learner.method, "sets": sets.digest, "seed": seed, "steps": steps, "start": _digest_of(start)},
    )
    what = f"Learning {model_path.stem}"
    save_every = min(TrainConfig(steps).save_every, max(1, steps // EVALUATIONS))
    with followed(what, folder, narrator, save_every=save_every, tensorboard=request.tensorboard) as on_log:
        model = learner(start, random_state=seed, on_progress=on_log).learn(sets.tasks, steps=steps, folder=folder)
    with narrator.phase("Writing"), outputs.staged() as staged:
        if staged.model is not None:
            model.save(staged.model)
    if not writing.quiet:
        took = time_in_words(seconds_trained(folder))
        sys.stdout.write(f"{model_path.stem}: {steps:,} steps in {took}\n{_outcome(model.evaluation_, sets)}\n")
    narrator.say(f"wrote {model_path}")
    narrator.say(f"another set is clustered by: coterie cluster FILE --method {learner.method} --weights {model_path}")


def _check(request: LearnRequest, seed: int, steps: int) -> Path:
    """Refuse what lacks an option or has a wrong one; return where the model goes."""
    file = request.reading.file
    if request.sets is None or request.reading.truth is None:
        missing = [name for name, value in (("--set", request.sets), ("--truth", request.reading.truth)) if not value]
        raise InputError(
            f"{file!r} is not a recipe (.toml), so it is read as a table of sorted sets, for which "
            f"{' and '.join(missing)} must be given: which set a row belongs to (--set COL), and which cluster of it "
            "(--truth COL)"
        )
    if request.method not in {None, *_LEARNERS}:
        raise InputError(f"--method {request.method} does not learn from sorted sets; there is {', '.join(_LEARNERS)}")
    if steps < 1:
        raise InputError(f"--steps must be at least 1; got {steps}")
    check_seed(seed)
    if request.writing.model is None:
        raise InputError("where to write what was learned is not said; add -o MODEL.safetensors")
    return Path(request.writing.model)


def _split(loaded: Loaded) -> SortedSets:
    """Part the rows of a table by their set, and make sure that there is something to learn from them."""
    chosen, source = loaded.chosen, loaded.source.name
    if chosen.ids is None or chosen.truth is None or chosen.ids_name == chosen.truth_name:
        raise InputError(f"--set and --truth both name the column {chosen.truth_name!r}; they must be two columns")
    known = np.flatnonzero(has_value(chosen.ids) & has_value(chosen.truth))
    if not len(known):
        raise TableError(f"no row of {source} has values of both {chosen.ids_name!r} and {chosen.truth_name!r}")
    names, members = np.unique([str(value) for value in chosen.ids[known].tolist()], return_inverse=True)
    _, clusters = np.unique([str(value) for value in chosen.truth[known].tolist()], return_inverse=True)
    sizes = np.bincount(members)
    if len(names) < 2:
        raise TableError(
            f"the column {chosen.ids_name!r} of {source} has one set only, {str(names[0])!r}; "
            "learning takes at least 2, better dozens"
        )
    if sizes.max() == 1:
        raise TableError(
            f"each of the {len(names):,} sets that {chosen.ids_name!r} tells apart has one row; "
            "let --set name a column in which the rows of a set are equal"
        )
    rows_of_sets = np.split(np.argsort(members, kind="stable"), np.cumsum(sizes)[:-1])
    tasks = [
        (_rows(chosen.features, known[rows], f"set {str(name)!r} of {source}"), clusters[rows])
        for name, rows in zip(names, rows_of_sets, strict=True)
    ]
    if all(len(np.unique(groups)) == 1 for _, groups in tasks):
        raise TableError(
            f"no set of {source} has more than one cluster in the column {chosen.truth_name!r}, so there is nothing to "
            "tell apart; choose another column (--truth)"
        )
    missing = chosen.features.n_rows - len(known)
    note = f"left out: {missing:,} rows without a value of {chosen.ids_name!r} or {chosen.truth_name!r}"
    _, features = encode_tasks(tasks, "standard")
    notes = (*chosen.features.notes, note) if missing else chosen.features.notes
    return SortedSets(tasks, len(features), _digest(tasks), notes)


def _rows(table: Table, rows: Array, source: str) -> Table:
    if table.block is not None:
        return replace(table, block=table.block[rows], side={}, source=source)
    return replace(table, columns=tuple(column[rows] for column in table.columns), side={}, source=source)


def _start(learner: type[DAC] | type[AMCP], weights: str | None, n_features: int, narrator: Narrator) -> str | None:
    """Weights to begin from; None for nothing."""
    if weights == _FROM_NOTHING:
        return None
    named = str(learner().weights) if weights is None else weights
    _, card = load_pretrained(named)
    if card.get("method") != learner.method:
        raise WeightsError(f"--weights {named} are for the method {card.get('method')!r}; name others, or none")
    taken = card["model"]["n_features"]
    if taken == n_features:
        return named
    if weights is not None:
        raise WeightsError(
            f"--weights {named} take {taken} features, and the sets have {n_features}; name others, or none"
        )
    narrator.say(f"note: begun from nothing, since {named} takes {taken} features, and the sets have {n_features}")
    return None


def _digest(tasks: list[tuple[Table, Array]]) -> str:
    digest = hashlib.sha256()
    for table, clusters in tasks:
        columns = [table.column(i).tolist() for i in range(table.n_columns)]
        digest.update(json.dumps([table.names, columns, clusters.tolist()], default=str).encode())
    return digest.hexdigest()


def _digest_of(start: str | None) -> str | None:
    return None if start is None else file_digest(pretrained_path(start))


def _outcome(evaluation: Mapping[str, float], sets: SortedSets) -> str:
    agreement = f"adjusted Rand index {evaluation['adjusted_rand_index']:.3f}"
    held_out = int(evaluation["held_out_tasks"])
    if held_out == 0:
        return f"none of the {len(sets.tasks)} sets was held out, they are too few; on those learned from: {agreement}"
    return f"on {held_out} of the {len(sets.tasks)} sets, which were held out: {agreement}"
