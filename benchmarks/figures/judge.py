"""Figures of the default method: calibration of its confidence, and samples of the prior that it is trained on."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from PIL import Image
from torch import Generator, Tensor

from benchmarks.figures import Context
from benchmarks.figures.layout import COLOURS, FAINT, INK, PALETTE, dots, panels, save
from benchmarks.lines import RESULTS, Line, read_lines
from coterie.errors import InputError
from coterie.judged.prior.geometric import ADJACENT, ARRANGEMENTS, SPATIAL
from coterie.judged.prior.sampling import standardise
from coterie.judged.prior.task import SyntheticTask
from coterie.judged.prior.universal import SyntheticPrior

N_BINS = 10
LOWEST = -0.05  # end of the axis of true agreement, which may be a little below zero
REAL_GROUPS = ("batteries", "tables", "highdim")
SEED = 3
COLUMNS = 8
QUOTA: Mapping[str, Mapping[str, int]] = {
    "geometric": {"scattered": 5, "packed": 6, "grid": 4, "grouped": 3} | dict.fromkeys((*ARRANGEMENTS, *ADJACENT), 1),
    "table": {"factors": 8, "manifold": 2, "embedding": 2, "spectra": 2, "sparse": 2},
}
"""Panels of each layout, in the order in which they are drawn."""
N_COLOURS = 96


def draw_calibration(context: Context) -> None:
    """Draw expected against true agreement: a dot per set, a ring per bin with the number of its sets."""
    lines = read_lines(context.suite.results)
    if not lines:
        raise InputError(f"{context.suite.results} is empty. Run python -m benchmarks run judge_calibration first.")
    judge = lines[-1]["settings"]["judge"]
    synthetic = [line for line in lines if line["settings"]["judge"] == judge and line["metrics"] and line["k"] > 1]
    # A set that was clustered again has its newest line last.
    real = {
        (line["data"], line["method"]): line
        for line in read_lines(RESULTS / "zero_shot.jsonl")
        if line["method"] in {"coterie", "coterie-fast"} and line["settings"]["group"] in REAL_GROUPS
    }
    figure, axes = panels(1, 1, width=4.2, height=4.2)
    axis = axes[0, 0]
    axis.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
    _draw_points(axis, synthetic, COLOURS[0], "synthetic")
    _draw_points(axis, list(real.values()), COLOURS[1], "real")
    axis.set(xlim=(0, 1), ylim=(LOWEST - 0.02, 1.02), xlabel="expected agreement", aspect="equal")
    axis.set_ylabel("agreement with the truth (ARI)", color=INK)
    axis.legend(loc="upper left", fontsize=8)
    save(figure, context.folder, "judge-calibration.png")


def _draw_points(axis: Axes, lines: Sequence[Line], colour: str, title: str) -> None:
    pairs = [
        (line["metrics"]["confidence"], line["metrics"]["ari"]) for line in lines if "confidence" in line["metrics"]
    ]
    if not pairs:
        return
    predicted, true = np.array(pairs).T
    axis.scatter(predicted, np.maximum(true, LOWEST), s=7, color=colour, alpha=0.3, linewidths=0)
    index = np.clip(np.digitize(predicted, np.linspace(0.0, 1.0, N_BINS + 1)) - 1, 0, N_BINS - 1)
    bins = [(predicted[index == number], true[index == number]) for number in np.unique(index)]
    means = np.array([(own.mean(), other.mean()) for own, other in bins])
    errors = [other.std(ddof=1) / np.sqrt(len(other)) if len(other) > 1 else 0.0 for _, other in bins]
    options: dict[str, Any] = {"marker": "o", "markersize": 5, "markeredgecolor": "white", "linewidth": 1.2}
    axis.errorbar(means[:, 0], means[:, 1], errors, color=colour, label=f"{title}: {len(pairs)}", **options)
    for (own, _), position in zip(bins, means, strict=True):
        text: dict[str, Any] = {"xytext": (4, -9), "textcoords": "offset points", "fontsize": 7, "color": colour}
        axis.annotate(str(len(own)), (float(position[0]), float(position[1])), **text)


def draw_gallery(context: Context) -> None:
    """Draw samples of the synthetic prior: two thirds shapes, one third tables."""
    sets = [one for kind, quota in QUOTA.items() for one in _sample_quota(kind, quota)]
    figure, axes = panels(-(-len(sets) // COLUMNS), COLUMNS, width=1.2, height=1.15)
    for axis, one in zip(axes.flat, sets, strict=True):
        _draw_task(axis, one)
    name = "universal-gallery.png"
    save(figure, context.folder, name)
    # Thousands of dots with soft edges make a large file; with few colours it is a third of that.
    with Image.open(context.folder / name) as image:
        image.convert("RGB").quantize(N_COLOURS).save(context.folder / name, optimize=True)


def _sample_quota(kind: str, quota: Mapping[str, int]) -> list[SyntheticTask]:
    """Return the first samples of each layout, as many as its quota."""
    max_features = 3 if kind == "geometric" else 40
    prior = SyntheticPrior(
        min_points=200, max_points=700, max_features=max_features, weights={kind: 1.0}, decorated=0.0
    )
    generator = Generator().manual_seed(SEED)
    taken: dict[str, list[SyntheticTask]] = {layout: [] for layout in quota}
    while any(len(taken[layout]) < count for layout, count in quota.items()):
        one = prior.sample_task(generator)
        layout = str(one.description["layout"])
        if len(taken[layout]) >= quota[layout]:
            continue
        if one.x.shape[1] != 3 or layout in SPATIAL or kind == "table":
            taken[layout].append(one)
    return [one for sets in taken.values() for one in sets]


def _plane(x: Tensor) -> Tensor:
    """Return two features as they are, one beside noise, and of more the first two principal components."""
    if x.shape[1] == 2:
        return x
    level = standardise(x)
    if x.shape[1] == 1:
        return torch.cat((level, torch.rand(level.shape, generator=Generator().manual_seed(0))), dim=1)
    directions: Tensor = torch.linalg.svd(level, full_matrices=False)[2][:2]
    return level @ directions.T


def _draw_task(axis: Axes, one: SyntheticTask) -> None:
    colours = [PALETTE[label % len(PALETTE)] if label >= 0 else FAINT for label in one.labels.tolist()]
    dots(axis, _plane(one.x).numpy(), s=1.6, c=colours, linewidths=0)
    axis.set(xticks=[], yticks=[], box_aspect=0.85)
    if one.kind == "geometric":
        axis.set_aspect("equal", "datalim")
    n_clusters, width = int(one.labels.max()) + 1, one.x.shape[1]
    features = "" if one.kind == "geometric" and width == 2 else f", {width} col."
    axis.set_title(f"{one.description['layout']}: {n_clusters}{features}", fontsize=7, pad=2)
