"""Training of the judge on scored candidates: partitions of synthetic sets, compared with the true labels.

To score the candidates of one set takes about a second, a training step milliseconds. Scored sets are therefore built
first, kept in files, and used many times.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar, Protocol, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.utils.rnn import pad_sequence

from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.errors import ConfigError
from coterie.judged.candidates.registry import Effort, generate_candidates
from coterie.judged.features.table import CandidateFeatures, column_names
from coterie.judged.judge import Judge
from coterie.judged.network import JudgedBatch, JudgeModel
from coterie.judged.preparation import Preparation
from coterie.judged.prior.task import SyntheticTask
from coterie.judged.sample import SAMPLE_ROWS, Samples, subsample_indices
from coterie.metrics import adjusted_rand_index
from coterie.nn.model import build, to_arrays, to_tensors
from coterie.progress import Callback
from coterie.training.loop import TrainConfig, train
from coterie.validation import FRACTION, Constraints, Integer, check_parameters

SETS_PER_FILE = 20
MAX_CANDIDATES = 96  # candidates of a set that one training step uses, unless the recipe says otherwise
NEWTON_STEPS = 20
HALVINGS = 12
RIDGE = 1e-3
NUMBER_COST = 0.3  # logits that each doubling of the number of clusters costs: in doubt, few clusters
FOUND_SCORE = 0.5  # adjusted Rand index of the choice from which the clusters of a set count as found
FALSE_SINGLES = 0.03  # fraction of sets whose clusters would be found that may be taken for one cluster
_STRIDE = 1_000_003
_TENSORS = ("columns", "score", "n_clusters", "truth")  # of each set in a file
_CONSTRAINTS: Mapping[str, Constraints] = {
    "sets": Integer(1),
    "held_out": Integer(1),
    "balanced": FRACTION,
    "max_candidates": Integer(2),
}


class JudgedTasks(Protocol):
    """What a judge is trained on."""

    metric: ClassVar[str]  # how the rows of the tasks are compared

    def sample_task(self, generator: Generator) -> SyntheticTask:
        """Sample one labelled set; all randomness comes from the generator."""


@final
@dataclass(frozen=True, slots=True)
class ScoredSetsConfig:
    """Numbers of scored sets, and how their candidates are generated."""

    RENAMED: ClassVar = {"thorough": "balanced", "shown": "max_candidates"}

    sets: int  # sets to train on
    held_out: int  # sets for evaluation and calibration
    balanced: float = 0.3  # fraction of the sets whose candidates have "balanced" effort; the others have "fast"
    max_candidates: int = MAX_CANDIDATES  # candidates of a set that one training step uses, sampled at random

    def __post_init__(self) -> None:
        check_parameters(self, _CONSTRAINTS, ConfigError)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ScoredSet:
    """The candidate partitions of one set, and how good they are."""

    columns: Float[Tensor, "R C"]  # features of each candidate
    score: Float[Tensor, " R"]  # adjusted Rand index of each candidate with the true labels
    n_clusters: Int[Tensor, " R"]
    n_true_clusters: int  # 1 if the set has no structure
    kind: str = ""  # kind of the set


def train_judge(
    config: Any,
    tasks: JudgedTasks,
    candidates: ScoredSetsConfig,
    optimisation: TrainConfig,
    *,
    batch_size: int,
    seed: int,
    folder: Path,
    more: Sequence[tuple[JudgedTasks, ScoredSetsConfig, int]] = (),
    start: str | Path | None = None,
    callback: Callback | None = None,
) -> tuple[JudgeModel, dict[str, Any]]:
    """Build scored sets in the folder, train a judge on them and calibrate it; `start` as in ``copy_weights``.

    With `more`, it is trained on the sets of further tasks too, each given with their numbers and their seed.
    Return the judge, and what its card says about features, calibration and held-out evaluation.
    """
    training, held_out = [], []
    for index, (source, config_of_sets, own_seed) in enumerate([(tasks, candidates, seed), *more]):
        name = f"judged-{index}" if index else "judged"
        sets = make_scored_sets(source, config_of_sets, own_seed, folder / name)
        training += sets[: config_of_sets.sets]
        held_out += sets[config_of_sets.sets :]
    return train_on_scored_sets(
        config,
        training,
        held_out,
        optimisation,
        batch_size=batch_size,
        max_candidates=candidates.max_candidates,
        seed=seed,
        folder=folder,
        metric=tasks.metric,
        start=start,
        callback=callback,
    )


def train_on_scored_sets(
    config: Any,
    training: Sequence[ScoredSet],
    held_out: Sequence[ScoredSet],
    optimisation: TrainConfig,
    *,
    batch_size: int,
    max_candidates: int = MAX_CANDIDATES,
    seed: int,
    folder: Path,
    metric: str = "euclidean",
    start: str | Path | None = None,
    callback: Callback | None = None,
) -> tuple[JudgeModel, dict[str, Any]]:
    """Train a judge on scored sets, calibrate it on others, and return what ``train_judge`` does.

    The state of training is kept in the folder.
    """
    generator = Generator().manual_seed(seed)
    model = build(JudgeModel, config, generator)
    model.fit_normalisation(torch.cat([one.columns for one in training]))
    if start is not None:
        copy_weights(model, start, metric)
    batches = candidate_batches(training, batch_size=batch_size, max_candidates=max_candidates, generator=generator)
    train(
        model,
        batches,
        optimisation,
        generator=generator,
        callback=callback,
        evaluate=lambda: evaluate_choices(model, held_out),
        folder=folder,
    )
    model.eval()
    return model, {
        "metric": metric,
        "columns": list(column_names(metric)),
        "calibration": fit_calibration(model, held_out),
        "evaluation": evaluate_choices(model, held_out),
    }


def copy_weights(model: JudgeModel, start: str | Path, metric: str = "euclidean") -> None:
    """Copy the weights of another judge of the same size: shipped ones by name, or those of a file.

    Columns are matched by name; those that it did not read have no effect at first.
    """
    judge = Judge.read(start)
    sizes = [(each.width, each.heads, each.depth, each.members) for each in (judge.network.config, model.config)]
    if sizes[0] != sizes[1]:
        raise ConfigError(f"start = {str(start)!r} is of another size than the recipe's [model]. Change one of them.")
    positions = {name: position for position, name in enumerate(column_names(metric))}
    theirs = [index for index, name in enumerate(judge.columns) if name in positions]
    ours = [positions[judge.columns[index]] for index in theirs]
    state = model.state_dict()
    for name, weight in to_tensors(dict(judge.network.weights)).items():
        if name in {"centre", "spread"}:
            state[name][ours] = weight[theirs]
        elif name.endswith("embed.0.weight"):
            state[name].zero_()
            state[name][:, ours] = weight[:, theirs]
        else:
            state[name].copy_(weight)


def make_scored_sets(tasks: JudgedTasks, config: ScoredSetsConfig, seed: int, folder: Path) -> list[ScoredSet]:
    """Build the scored sets that the folder lacks, on all processors, and read them all; held-out sets come last."""
    folder.mkdir(parents=True, exist_ok=True)
    needed = config.sets + config.held_out
    ranges = [range(start, min(needed, start + SETS_PER_FILE)) for start in range(0, needed, SETS_PER_FILE)]
    missing = [indices for indices in ranges if not _file(folder, indices).exists()]
    if missing:
        with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
            for future in [pool.submit(_make_file, tasks, config, seed, indices, folder) for indices in missing]:
                future.result()
    return [scored for indices in ranges for scored in read_scored_sets(_file(folder, indices))]


def score_candidates(task: SyntheticTask, effort: Effort, seed: int, metric: str = "euclidean") -> ScoredSet | None:
    """Generate candidate partitions of a set as the estimator does, and compare them with its labels.

    None if there are no candidates, or too few rows left that are not noise.
    """
    table = task.to_table()
    preparation = Preparation.fit(table, subsample_indices(table.n_rows, SAMPLE_ROWS[effort], seed))
    take = Samples.take_directions if metric == "cosine" else Samples.take
    samples = take(preparation, preparation.encode(table), effort, seed)
    space, truth = samples.spaces[0], task.labels.numpy()[samples.indices[0]]
    labelled = truth >= 0
    candidates = generate_candidates(space, effort=effort, seed=seed) if labelled.any() else []
    if not candidates:
        return None
    scores = [adjusted_rand_index(truth[labelled], each.labels[labelled]) for each in candidates]
    return ScoredSet(
        columns=torch.from_numpy(CandidateFeatures.compute(space, candidates).table()),
        score=torch.tensor(scores, dtype=torch.float32),
        n_clusters=torch.tensor([each.n_clusters for each in candidates]),
        n_true_clusters=task.n_clusters,
        kind=task.kind,
    )


def candidate_batches(
    sets: Sequence[ScoredSet], *, batch_size: int, max_candidates: int, generator: Generator
) -> Iterator[JudgedBatch]:
    """Yield batches of random sets, forever, with at most ``max_candidates`` random candidates of each."""
    while True:
        indices = torch.randint(len(sets), (batch_size,), generator=generator).tolist()
        yield pad_candidates([_subsample(sets[index], max_candidates, generator) for index in indices])


def _subsample(one: ScoredSet, max_candidates: int, generator: Generator) -> ScoredSet:
    if len(one.score) <= max_candidates:
        return one
    kept = torch.randperm(len(one.score), generator=generator)[:max_candidates]
    return replace(one, columns=one.columns[kept], score=one.score[kept], n_clusters=one.n_clusters[kept])


def pad_candidates(sets: Sequence[ScoredSet]) -> JudgedBatch:
    """Pad scored sets to one number of candidates and stack them."""
    pad = partial(pad_sequence, batch_first=True)
    return JudgedBatch(
        columns=pad([one.columns for one in sets]),
        score=pad([one.score for one in sets]),
        doublings=pad([(one.n_clusters / one.n_true_clusters).log2().abs() for one in sets]),
        valid=pad([torch.ones_like(one.n_clusters, dtype=torch.bool) for one in sets]),
        single=torch.tensor([one.n_true_clusters == 1 for one in sets]),
    )


@torch.no_grad()
def evaluate_choices(model: JudgeModel, sets: Sequence[ScoredSet]) -> dict[str, float]:
    """Compare the candidates that the judge chooses with the best ones, over sets of several clusters."""
    several = _sets_of_several_clusters(sets)
    rows = []
    for one in several:
        index = int(_costed_logits(model, one)[0].argmax())
        error = abs(int(one.n_clusters[index]) - one.n_true_clusters)
        rows.append((float(one.score[index]), float(one.score.max()), error))
    names = ("adjusted_rand_index", "best_candidate", "error_in_number_of_clusters")
    return {name: sum(values) / len(rows) for name, values in zip(names, zip(*rows, strict=True), strict=True)}


def fit_calibration(model: JudgeModel, sets: Sequence[ScoredSet]) -> dict[str, float]:
    """Calibrate the chosen candidates' scores, and the answer that there is one cluster.

    Slope and offset of the logits are fitted by Newton's method. In sets without structure, every candidate is wrong.
    """
    _sets_of_several_clusters(sets)
    with torch.no_grad():
        scored = [(one, *_costed_logits(model, one)) for one in sets]
    logits = torch.stack([logit.max() for _, logit, _ in scored]).double()
    right = [one.score[logit.argmax()] if one.n_true_clusters > 1 else logit.new_zeros(()) for one, logit, _ in scored]
    truth = torch.stack(right).double().clamp(0.0, 1.0)
    design = torch.stack((logits, torch.ones_like(logits)), dim=1)
    line = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for _ in range(NEWTON_STEPS):
        predicted = (design @ line).sigmoid()
        curvature = (design * (predicted * (1.0 - predicted)).unsqueeze(1)).T @ design
        curvature += RIDGE * torch.eye(2, dtype=torch.float64)
        step = torch.linalg.solve(curvature, design.T @ (truth - predicted))
        # A full step can overshoot far from the optimum: take the best of 1, 1/2, 1/4, ...
        sizes = 0.5 ** torch.arange(HALVINGS, dtype=torch.float64)
        trials = line + sizes.unsqueeze(1) * step
        losses = binary_cross_entropy_with_logits(trials @ design.T, truth.expand(HALVINGS, -1), reduction="none")
        line = trials[int(losses.sum(dim=1).argmin())]
    slope, offset = line.tolist()
    # Where the clusters would not be found anyway, "one cluster" is no worse an answer.
    found = [float(each[2].sigmoid()) for each, score in zip(scored, right, strict=True) if score >= FOUND_SCORE]
    threshold = max(0.5, float(np.quantile(found, 1.0 - FALSE_SINGLES))) if found else 1.0
    return {"slope": slope, "offset": offset, "number_cost": NUMBER_COST, "single_threshold": threshold}


def _costed_logits(model: JudgeModel, one: ScoredSet) -> tuple[Float[Tensor, " R"], Float[Tensor, " 1"]]:
    """Return the logits of the candidates of a set, less the cost of their numbers of clusters, and of one cluster."""
    logits, single = model(one.columns.unsqueeze(0))
    return logits.squeeze(0) - NUMBER_COST * one.n_clusters.log2(), single


def _sets_of_several_clusters(sets: Sequence[ScoredSet]) -> list[ScoredSet]:
    several = [one for one in sets if one.n_true_clusters > 1]
    if not several:
        raise ConfigError(f"Each of the {len(sets)} held-out sets is a single cluster. Hold out more sets.")
    return several


def _make_file(tasks: JudgedTasks, config: ScoredSetsConfig, seed: int, indices: range, folder: Path) -> None:
    torch.set_num_threads(1)
    tensors, kinds = {}, []
    for index in indices:
        one = None
        generator = Generator().manual_seed(seed * _STRIDE + index)
        while one is None:
            effort: Effort = "balanced" if _bernoulli(config.balanced, generator) else "fast"
            one = score_candidates(tasks.sample_task(generator), effort, index, tasks.metric)
        kinds.append(one.kind)
        truth = torch.tensor(one.n_true_clusters)
        for name, value in zip(_TENSORS, (one.columns, one.score, one.n_clusters, truth), strict=True):
            tensors[f"{index}.{name}"] = value
    card = {"sets": [indices.start, indices.stop], "kinds": kinds}
    save_checkpoint(_file(folder, indices), to_arrays(tensors), card, force=True)


def read_scored_sets(path: Path) -> list[ScoredSet]:
    """Read the scored sets of one file."""
    arrays, card = load_checkpoint(path)
    tensors = to_tensors(arrays)
    rows = [[tensors[f"{index}.{name}"] for name in _TENSORS] for index in range(*card["sets"])]
    kinds = card.get("kinds", [""] * len(rows))
    return [
        ScoredSet(columns, score, n_clusters, int(truth), kind)
        for (columns, score, n_clusters, truth), kind in zip(rows, kinds, strict=True)
    ]


def _file(folder: Path, indices: range) -> Path:
    return folder / f"judged-{indices.start:06d}.safetensors"


def _bernoulli(probability: float, generator: Generator) -> bool:
    return bool(torch.rand((), generator=generator) < probability)
