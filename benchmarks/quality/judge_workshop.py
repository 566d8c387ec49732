"""Judges made for comparison: trained on some sets, told less, built otherwise, or not trained at all."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from torch import Generator, Tensor, nn

from benchmarks.quality.records import Floats
from coterie.judged.features.neighbours import gap_evidence, mode_evidence, neighbourhood_evidence
from coterie.judged.features.partitions import Moments, Partitions, size_evidence
from coterie.judged.features.separation import (
    column_evidence,
    normality_evidence,
    pair_evidence,
    separation_evidence,
    shape_evidence,
)
from coterie.judged.features.table import BRIEF, CONTEXT, FEATURES, STEPS, ranks_of, whole
from coterie.judged.judge import ENOUGH, JudgeModel
from coterie.judged.space import Space
from coterie.judged.training import SHOWN, JudgedSet, judged_batches
from coterie.nn.model import build
from coterie.recipes import Recipe
from coterie.training.loop import train

TREES: Final = 300
BINS: Final = 255
Chooser: TypeAlias = Callable[[JudgedSet], int]
"""Place of the proposal that is taken."""


def _groups() -> dict[str, tuple[int, ...]]:
    """Columns that say the same kind of thing, by what computes them; their ranks go with them."""
    x = np.random.default_rng(0).normal(size=(40, 3))
    geometry, parts = Space.of(x), Partitions.of(np.arange(40)[None] % 2)
    moments = Moments.of(geometry, parts)
    names: dict[str, Iterable[str]] = {
        "the rows as a whole": whole(geometry),
        "sizes": size_evidence(parts),
        "neighbourhoods": neighbourhood_evidence(geometry, parts),
        "gaps and modes": {**gap_evidence(geometry, parts), **mode_evidence(geometry, parts)},
        "separation": separation_evidence(geometry, parts),
        "normal clouds": normality_evidence(geometry, parts, moments),
        "insides of clusters": shape_evidence(parts, moments),
        "pairs of clusters": pair_evidence(geometry, parts, moments),
        "columns": column_evidence(geometry, parts),
    }
    evidence = {group: [*inside, *(f"rank of {name}" for name in inside)] for group, inside in names.items()}
    others = {
        "ranks": [name for name in BRIEF if name.startswith("rank of ")],
        "agreement with other proposals": list(CONTEXT),
        "steps to fewer and more clusters": list(STEPS),
        "who proposed": [name for name in BRIEF if name.startswith(("by ", "on "))],
    }
    places = {name: place for place, name in enumerate(BRIEF)}
    return {group: tuple(places[name] for name in inside) for group, inside in (others | evidence).items()}


GROUPS: Final = _groups()
PROPOSERS: Final = {name: place for place, name in enumerate(BRIEF) if name.startswith(("by ", "on "))}
RULES: Final = {
    name: BRIEF.index(name) for name in ("silhouette", "log_calinski_harabasz", "normal_bic", "agreement_mean")
}
"""Columns by whose largest value a proposal can be chosen."""


@dataclass(frozen=True)
class Outcome:
    """Of each set: agreement of what was chosen, the best that was there, and the error in the number of clusters."""

    ari: Sequence[float]
    best: Sequence[float]
    k_error: Sequence[float]

    def summary(self) -> dict[str, float]:
        """Means and their standard errors."""
        found = {"sets": float(len(self.ari))}
        for name, values in asdict(self).items():
            found[name] = round(float(np.mean(values)), 5)
            found[f"{name}_se"] = round(float(np.std(values) / np.sqrt(len(values))), 5)
        return found


@dataclass(frozen=True, eq=False)
class Workshop:
    """What is learned from, what is measured with, and how is trained."""

    training: Sequence[JudgedSet]
    testing: Sequence[JudgedSet]
    """Sets of more than one cluster."""
    recipe: Recipe
    steps: int

    @cached_property
    def judge(self) -> Chooser:
        """The judge with nothing left out."""
        return self.trained()

    def trained(self, sets: int | None = None, hidden: Sequence[int] = (), *, attends: bool = True) -> Chooser:
        """A judge that has seen the first so many sets; hidden columns always have their usual value.

        One that does not attend sees each proposal alone.
        """
        generator = Generator().manual_seed(self.recipe.seed)
        model = build(JudgeModel, self.recipe.model, generator)
        if not attends:
            for member in model.members:
                member.blocks = nn.ModuleList()
        training = self.training[:sets]
        model.accustom(torch.cat([one.columns for one in training]))
        usual = model.centre[list(hidden)]

        def shown(columns: Tensor) -> Tensor:
            if not hidden:
                return columns
            columns = columns.clone()
            columns[..., list(hidden)] = usual
            return columns

        at_once = SHOWN if self.recipe.proposals is None else self.recipe.proposals.shown
        batches = judged_batches(training, batch_size=self.recipe.batch_size, shown=at_once, generator=generator)
        settings = replace(self.recipe.train, steps=self.steps, keep_best=None, patience=None)
        train(
            model,
            (replace(batch, columns=shown(batch.columns)) for batch in batches),
            settings,
            generator=generator,
        )
        model.eval()

        @torch.no_grad()
        def choose(one: JudgedSet) -> int:
            return int(model(shown(one.columns).unsqueeze(0))[0].argmax())

        return choose

    def trees(self) -> Chooser:
        """Boosted trees that predict the agreement of each proposal alone; every set counts alike."""
        several = [one for one in self.training if one.truth > 1]
        columns = torch.cat([one.columns for one in several]).numpy()
        # Scikit-learn would put numbers into bins itself, but takes very long over it where rows have weights.
        some = columns[:: max(1, len(columns) // ENOUGH)]
        edges = np.quantile(some, np.linspace(0.0, 1.0, BINS + 1)[1:-1], axis=0).T

        def binned(columns: Floats) -> Floats:
            places = [np.searchsorted(*both) for both in zip(edges, columns.T, strict=True)]
            return np.stack(places, axis=1).astype(np.float32)

        trees = min(TREES, self.steps)  # fewer only where all is to be quick
        model = HistGradientBoostingRegressor(max_iter=trees, early_stopping=False, random_state=self.recipe.seed)
        model.fit(
            binned(columns),
            torch.cat([one.score for one in several]).numpy(),
            sample_weight=np.concatenate([np.full(len(one.score), 1.0 / len(one.score)) for one in several]),
        )
        return lambda one: int(model.predict(binned(one.columns.numpy())).argmax())

    def measured(self, choose: Chooser, *, without: int | None = None) -> Outcome:
        """What is chosen, perhaps without the proposals of one column of `PROPOSERS`."""
        ari, best, k_error = [], [], []
        for one in self.testing:
            left = one if without is None else _without(one, without)
            if not len(left.score):  # then all rows are said to be one cluster
                ari.append(0.0)
                best.append(0.0)
                k_error.append(one.truth - 1.0)
                continue
            place = choose(left)
            ari.append(float(left.score[place]))
            best.append(float(left.score.max()))
            k_error.append(float(abs(int(left.n_clusters[place]) - one.truth)))
        return Outcome(ari, best, k_error)


def _without(one: JudgedSet, column: int) -> JudgedSet:
    """A set without the proposals that have a column; the ranks are those among the others."""
    kept = one.columns[:, column] == 0
    columns = one.columns[kept]
    if len(columns):
        width = len(FEATURES)
        columns[:, width : 2 * width] = torch.from_numpy(ranks_of(columns[:, :width].numpy()))
    return JudgedSet(columns, one.score[kept], one.n_clusters[kept], one.truth)
