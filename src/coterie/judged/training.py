"""What a judge is trained on: sets whose truth is known, what is proposed for them, and how good that is.

To propose and to look at proposals takes about a second for a set, a step of training some milliseconds; so the judged
sets are made first, kept in files, and used many times.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.errors import ConfigError
from coterie.judged.candidates.registry import Effort, propose
from coterie.judged.features.table import Case
from coterie.judged.judge import JudgeModel
from coterie.judged.prior.universal import DrawnSet, UniversalTasks
from coterie.metrics import adjusted_rand_index
from coterie.nn.model import JudgedBatch

PART = 20
"""Judged sets in a file."""
FEWEST_ALONE = 40
"""Points that a cluster must have to be shown as a set of its own."""
SHOWN = 96
"""Most proposals for a set that one step of training sees, unless said otherwise."""
NEWTON_STEPS = 20
HALVINGS = 12
RIDGE = 1e-3
_STRIDE = 1_000_003
_NAME = "judged-{}.safetensors"


@final
@dataclass(frozen=True, slots=True)
class JudgingConfig:
    """What is proposed for how many sets."""

    sets: int
    """To train on."""
    held_out: int
    """To calibrate and to evaluate with."""
    thorough: float = 0.3
    """Share of the sets that get the proposals of "balanced" effort; the others get those of "fast"."""
    single: float = 0.15
    """Share of the sets that are one cluster of a larger set."""
    shown: int = SHOWN
    """Most proposals for a set that one step of training sees, drawn by chance."""

    def __post_init__(self) -> None:
        if self.sets < 1 or self.held_out < 1:
            raise ConfigError(f"sets={self.sets} and held_out={self.held_out} must both be at least 1.")
        if not (0.0 <= self.thorough <= 1.0 and 0.0 <= self.single < 1.0):
            raise ConfigError(f"thorough={self.thorough} and single={self.single} must be shares.")
        if self.shown < 2:
            raise ConfigError(f"shown={self.shown} must be at least 2.")


@final
@dataclass(frozen=True, slots=True, eq=False)
class JudgedSet:
    """What was proposed for one set."""

    columns: Float[Tensor, "R C"]
    """What is known about each proposal."""
    score: Float[Tensor, " R"]
    """Adjusted Rand index of each with the truth."""
    n_clusters: Int[Tensor, " R"]
    """Of each."""
    truth: int
    """Number of clusters of the truth."""


def judged_sets(
    tasks: UniversalTasks,
    config: JudgingConfig,
    seed: int,
    folder: Path,
    *,
    on_part: Callable[[int, int], None] | None = None,
) -> list[JudgedSet]:
    """Make the judged sets, those that are held out last, or read what the folder has of them already.

    Parameters
    ----------
    tasks : UniversalTasks
        Where the sets come from.
    config : JudgingConfig
        How many, and what is proposed.
    seed : int
        Of everything.
    folder : Path
        Where they are kept; each file is written when it is whole. Sets are made on all processors.
    on_part : callable, optional
        Called with the number of sets that are there and the number that are wanted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = config.sets + config.held_out
    parts = [range(start, min(wanted, start + PART)) for start in range(0, wanted, PART)]
    missing = [part for part in parts if not _file(folder, part).exists()]
    done = wanted - sum(map(len, missing))
    if missing:
        with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
            futures = [(part, pool.submit(_make_part, tasks, config, seed, part, folder)) for part in missing]
            for part, future in futures:
                future.result()
                done += len(part)
                if on_part is not None:
                    on_part(done, wanted)
    return [judged for part in parts for judged in _read_part(_file(folder, part))]


def judged(drawn: DrawnSet, effort: Effort, seed: int) -> JudgedSet | None:
    """Propose partitions of a set and compare them with its truth; None if there are none to compare."""
    x, truth = drawn.x.double().numpy(), drawn.labels.numpy()
    proposals = propose(x, effort=effort, seed=seed)
    if not proposals:
        return None
    told = truth >= 0
    scores = [adjusted_rand_index(truth[told], each.labels[told]) for each in proposals]
    return JudgedSet(
        columns=torch.from_numpy(Case.of(x, proposals).brief()),
        score=torch.tensor(scores, dtype=torch.float32),
        n_clusters=torch.tensor([each.n_clusters for each in proposals]),
        truth=len(np.unique(truth[told])),
    )


def largest_alone(drawn: DrawnSet) -> DrawnSet:
    """The largest cluster of a set, as a set of its own, unless it is small."""
    members = drawn.labels == int(torch.bincount(drawn.labels.clamp(min=0)[drawn.labels >= 0]).argmax())
    if int(members.sum()) < FEWEST_ALONE:
        return drawn
    return DrawnSet(drawn.x[members], torch.zeros_like(drawn.labels[members]), drawn.kind, drawn.story)


def read_judged(folder: Path) -> list[JudgedSet]:
    """All judged sets that a folder has, in the order in which they were drawn."""
    return [judged for path in sorted(folder.glob(_NAME.format("*"))) for judged in _read_part(path)]


def judged_batches(
    sets: Sequence[JudgedSet], *, batch_size: int, shown: int, generator: Generator
) -> Iterator[JudgedBatch]:
    """Batches without end, drawn when they are asked for, with at most so many proposals for each set."""
    while True:
        chosen = torch.randint(len(sets), (batch_size,), generator=generator).tolist()
        yield padded([_some(sets[place], shown, generator) for place in chosen])


def _some(one: JudgedSet, at_most: int, generator: Generator) -> JudgedSet:
    """Of the proposals for a set, at most so many, drawn by chance: steps are faster, and no two are alike."""
    if len(one.score) <= at_most:
        return one
    kept = torch.randperm(len(one.score), generator=generator)[:at_most]
    return JudgedSet(one.columns[kept], one.score[kept], one.n_clusters[kept], one.truth)


def padded(sets: Sequence[JudgedSet]) -> JudgedBatch:
    """Judged sets as one batch."""
    most = max(len(one.score) for one in sets)
    columns = torch.zeros((len(sets), most, sets[0].columns.shape[1]))
    score, doublings, valid = (torch.zeros((len(sets), most)) for _ in range(3))
    for row, one in enumerate(sets):
        columns[row, : len(one.score)] = one.columns
        score[row, : len(one.score)] = one.score
        doublings[row, : len(one.score)] = (one.n_clusters / one.truth).log2().abs()
        valid[row, : len(one.score)] = 1.0
    return JudgedBatch(columns, score, doublings, valid > 0, torch.tensor([one.truth == 1 for one in sets]))


@torch.no_grad()
def held_out_choices(model: JudgeModel, sets: Sequence[JudgedSet]) -> dict[str, float]:
    """How good what the judge chooses is, beside the best that was proposed."""
    several = _several(sets)
    chosen, best, error = [], [], []
    for one in several:
        place = int(model(one.columns.unsqueeze(0))[0].argmax())
        chosen.append(float(one.score[place]))
        best.append(float(one.score.max()))
        error.append(abs(int(one.n_clusters[place]) - one.truth))
    count = len(several)
    return {
        "adjusted_rand_index": sum(chosen) / count,
        "best_proposal": sum(best) / count,
        "error_in_number_of_clusters": sum(error) / count,
    }


def calibrated(model: JudgeModel, sets: Sequence[JudgedSet]) -> dict[str, float]:
    """Slope and offset that bring the logits of what is chosen to the scores that it has, by maximum likelihood."""
    several = _several(sets)
    with torch.no_grad():
        top = [(model(one.columns.unsqueeze(0))[0].squeeze(0), one.score) for one in several]
    logits = torch.stack([logit.max() for logit, _ in top]).double()
    truth = torch.stack([score[logit.argmax()] for logit, score in top]).double().clamp(0.0, 1.0)
    design = torch.stack((logits, torch.ones_like(logits)), dim=1)
    line = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for _ in range(NEWTON_STEPS):
        predicted = (design @ line).sigmoid()
        curvature = (design * (predicted * (1.0 - predicted)).unsqueeze(1)).T @ design
        curvature += RIDGE * torch.eye(2, dtype=torch.float64)
        step = torch.linalg.solve(curvature, design.T @ (truth - predicted))
        # Half a step, and half of that, until it helps: far from the answer a whole one may leap beyond it.
        sizes = 0.5 ** torch.arange(HALVINGS, dtype=torch.float64)
        tried = line + sizes.unsqueeze(1) * step
        losses = binary_cross_entropy_with_logits(tried @ design.T, truth.expand(HALVINGS, -1), reduction="none").sum(
            dim=1
        )
        line = tried[int(losses.argmin())]
    slope, offset = line.tolist()
    return {"slope": slope, "offset": offset}


def _several(sets: Sequence[JudgedSet]) -> list[JudgedSet]:
    """Those whose truth is more than one cluster."""
    several = [one for one in sets if one.truth > 1]
    if not several:
        raise ConfigError(f"All of the {len(sets)} sets that are held out are one cluster each. Hold out more.")
    return several


def _make_part(tasks: UniversalTasks, config: JudgingConfig, seed: int, part: range, folder: Path) -> None:
    torch.set_num_threads(1)
    tensors: dict[str, Tensor] = {}
    for place in part:
        one = None
        generator = Generator().manual_seed(seed * _STRIDE + place)
        while one is None:
            effort: Effort = "balanced" if _happens(config.thorough, generator) else "fast"
            drawn = tasks.draw(generator)
            if _happens(config.single, generator):
                drawn = largest_alone(drawn)
            one = judged(drawn, effort, place)
        for name, value in (("columns", one.columns), ("score", one.score), ("n_clusters", one.n_clusters)):
            tensors[f"{place}.{name}"] = value
        tensors[f"{place}.truth"] = torch.tensor(one.truth)
    save_checkpoint(_file(folder, part), tensors, {"sets": [part.start, part.stop]}, force=True)


def _read_part(path: Path) -> list[JudgedSet]:
    tensors, card = load_checkpoint(path)
    return [
        JudgedSet(
            columns=tensors[f"{place}.columns"],
            score=tensors[f"{place}.score"],
            n_clusters=tensors[f"{place}.n_clusters"],
            truth=int(tensors[f"{place}.truth"]),
        )
        for place in range(*card["sets"])
    ]


def _file(folder: Path, part: range) -> Path:
    return folder / _NAME.format(f"{part.start:06d}")


def _happens(share: float, generator: Generator) -> bool:
    return bool(torch.rand((), generator=generator) < share)
