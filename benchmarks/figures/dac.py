"""Figures of DAC: passes, clusterings and densities (Figures 2, 3 and 5 of its paper), and characters (6 and 7)."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Ellipse
from matplotlib.patheffects import withStroke
from torch import Generator, Tensor

from benchmarks.data.image_sets import FeatureSet, emnist_tasks
from benchmarks.data.synthetic import SetSampler, SyntheticSet
from benchmarks.figures import Context
from benchmarks.figures.layout import (
    INK,
    PER_ROW,
    dots,
    matched_colours,
    panels,
    save,
    show_clusters,
    show_montage,
    square_around,
)
from benchmarks.methods.sets import load_model
from benchmarks.protocols.image_sets import train_emnist
from coterie.amortized.dac.network import DacModel
from coterie.errors import InputError
from coterie.metrics import adjusted_rand_index
from coterie.nn.density import GaussianHead, StatisticianHead
from coterie.ops.partitions import Clustering

SEED: Final = 5  # sets are the first of this seed that have enough clusters; nothing is measured with it
DOT: Final = 3.0
COLUMNS: Final = 4
CELLS: Final = 240  # points along each side at which a density is evaluated
DECADES: Final = 4.0  # powers of ten that a density plot spans
N_IMAGES, N_CLASSES, N_SETS = 100, 4, 3
MANY_PER_ROW: Final = 14


def _sets(kind: str, max_points: int, max_clusters: int, count: int, least: int) -> list[SyntheticSet]:
    """Return the first sets with at least that many clusters."""
    sampler = SetSampler(kind, max_points, max_clusters, SEED, 50)
    return list(islice((one for batch in sampler.sample() for one in batch if one.n_clusters >= least), count))


def _model(context: Context, method: str) -> DacModel:
    model: DacModel = load_model("dac", context.suite.methods[method]["settings"]["weights"])
    return model


def draw_filtering(context: Context) -> None:
    """Draw Figures 2 and 3: the passes over one set, and the refined clusters."""
    (one,) = _sets("mog", 1000, 8, 1, least=6)
    model = _model(context, "dac")
    found = model.cluster(one.x, Generator().manual_seed(SEED))
    passes = _passes(model, one)
    figure, axes = panels(-(-(len(passes) + 2) // COLUMNS), COLUMNS)
    truth, *others = axes.flat
    _draw_labels(truth, one, one.y)
    truth.set_title(f"truth: {one.n_clusters} clusters")
    shades = LinearSegmentedColormap.from_list("membership", ("#e9c46a", "#d1495b", "#26256b"))
    image: Any = None
    for number, (axis, (member, remaining, mean, deviation)) in enumerate(zip(others, passes, strict=False), start=1):
        dots(axis, one.x[~remaining].numpy(), s=DOT, color="#e2e2e2", linewidths=0)
        order = member.argsort()  # likely members on top
        shown = one.x[remaining][order].numpy()
        colours = {"c": member[order].numpy(), "cmap": shades, "vmin": 0, "vmax": 1}
        image = axis.scatter(shown[:, 0], shown[:, 1], s=DOT, linewidths=0, **colours)
        axis.add_patch(_ellipse(mean, deviation))
        axis.set_title(f"pass {number}: {int((member > 0.5).sum())} of {len(shown)} points")
    last = others[len(passes)]
    _draw_labels(last, one, found.labels)
    for mean, deviation in zip(found.extras["mean"], found.extras["deviation"], strict=True):
        last.add_patch(_ellipse(mean, deviation))
    last.set_title(f"refined: {found.n_clusters} clusters")
    for axis in axes.flat:
        _frame(axis, one)
    for axis in others[len(passes) + 1 :]:
        axis.axis("off")
    bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=30, pad=0.01)
    bar.set_label("membership", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    save(figure, context.folder, "dac-filtering.png")


def _passes(model: DacModel, one: SyntheticSet) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Return memberships, remaining points, mean and deviation of each pass."""
    if not isinstance(model.density, GaussianHead):
        raise InputError("Passes are drawn with ellipses, which only a Gaussian density has.")
    remaining = torch.ones(len(one.x), dtype=torch.bool)
    passes = []
    while bool(remaining.any()):
        with torch.no_grad():
            found = model.filter(one.x[remaining].unsqueeze(0))
        if found.context is None:
            raise InputError("A network with a density returns the parameters of each cluster.")
        mean, deviation = model.density.parameters_of(found.context)
        member = found.logits[0].sigmoid()
        if not bool((member > 0.5).any()):
            break
        passes.append((member, remaining.clone(), mean[0], deviation[0]))
        remaining[remaining.clone()] = member <= 0.5
    return passes


def draw_mixtures(context: Context) -> None:
    """Draw clusterings of mixtures, of the size in training and with three times as many clusters."""
    model = _model(context, "dac")
    shown = _sets("mog", 1000, 4, 3, least=3) + _sets("mog", 3000, 12, 3, least=7)
    figure, axes = panels(2, len(shown), width=1.9, height=1.9)
    for column, one in zip(axes.T, shown, strict=True):
        _draw_truth_and_found(column, one, model.cluster(one.x, Generator().manual_seed(SEED)))
    save(figure, context.folder, "dac-mog.png")


def draw_warped(context: Context) -> None:
    """Draw Figure 5: arcs, their clusters, and the density of the flow."""
    model = _model(context, "dac-warped")
    shown = _sets("warped", 1000, 4, 3, least=3) + _sets("warped", 3000, 12, 3, least=6)
    figure, axes = panels(3, len(shown), width=1.9, height=1.9)
    for column, one in zip(axes.T, shown, strict=True):
        found = model.cluster(one.x, Generator().manual_seed(SEED))
        _draw_truth_and_found(column[:2], one, found)
        _draw_density(column[2], one, model, found)
    axes[2, 0].set_ylabel("density")
    save(figure, context.folder, "dac-warped.png")


def _draw_truth_and_found(column: Sequence[Axes], one: SyntheticSet, found: Clustering) -> None:
    truth, ours = column
    _draw_labels(truth, one, one.y)
    truth.set_title(f"{len(one.x)} points, {one.n_clusters} clusters", fontsize=8)
    _draw_labels(ours, one, found.labels)
    score = adjusted_rand_index(one.y.numpy(), found.labels.numpy())
    ours.set_title(f"{found.n_clusters} found, ARI {score:.2f}", fontsize=8)
    if truth.get_subplotspec().is_first_col():  # type: ignore[union-attr]  # a panel of a grid has one
        truth.set_ylabel("truth")
        ours.set_ylabel("DAC")
    for axis in column:
        _frame(axis, one)


def _draw_labels(axis: Axes, one: SyntheticSet, labels: Tensor) -> None:
    dots(axis, one.x.numpy(), s=DOT, c=matched_colours(one.y.numpy(), labels.numpy()), linewidths=0)


def _draw_density(axis: Axes, one: SyntheticSet, model: DacModel, found: Clustering) -> None:
    sides = [torch.linspace(low, high, CELLS) for low, high in square_around(one.x, 0.54).values()]
    grid = torch.cartesian_prod(*sides)
    density = model.joint(grid, found).logsumexp(dim=1).reshape(CELLS, CELLS).T.numpy() / np.log(10)
    levels = np.linspace(density.max() - DECADES, density.max(), 17)
    axis.contourf(*(side.numpy() for side in sides), density, levels, cmap="GnBu", extend="min")
    dots(axis, one.x[::3].numpy(), s=1.0, color=INK, alpha=0.5, linewidths=0)
    _frame(axis, one)


def _ellipse(mean: Tensor, deviation: Tensor) -> Ellipse:
    """Ellipse of two standard deviations."""
    width, height = (4 * deviation).tolist()
    outline: dict[str, Any] = {"fill": False, "edgecolor": INK, "linewidth": 0.8}
    effects = [withStroke(linewidth=2.2, foreground="white")]
    return Ellipse((float(mean[0]), float(mean[1])), width, height, path_effects=effects, **outline)


def _frame(axis: Axes, one: SyntheticSet) -> None:
    axis.set(xticks=[], yticks=[], aspect="equal", box_aspect=1, **square_around(one.x, 0.54))


def _character_sets() -> Iterator[FeatureSet]:
    """Sample test sets of 100 images with images of all four classes, forever."""
    sampler, generator = emnist_tasks("test", (N_IMAGES, N_IMAGES), N_CLASSES), Generator().manual_seed(SEED)
    while True:
        batch = sampler.sample(1, generator)
        one = FeatureSet(batch.x[0], batch.labels[0])
        if one.n_clusters == N_CLASSES:
            yield one


@torch.no_grad()
def draw_emnist_filtering(context: Context) -> None:
    """Draw Figure 6: members of the first cluster found, images generated from its description, and the others."""
    model = train_emnist(context.suite)
    if not isinstance(model.density, StatisticianHead):
        raise InputError(f"density={model.config.density!r} generates no images; use 'statistician'.")
    widths = (PER_ROW, PER_ROW, MANY_PER_ROW)
    figure, axes = panels(N_SETS, 3, width=3.2, height=2.1, gridspec_kw={"width_ratios": widths})
    for row, one in zip(axes, islice(_character_sets(), N_SETS), strict=True):
        x = one.x.unsqueeze(0)
        found = model.filter(model.encode(x, torch.ones(x.shape[:2], dtype=torch.bool)))
        inside = found.logits[0] > 0
        if found.context is None or not bool(inside.any()):
            raise InputError("The network selects no image of a set in its first pass. Train it for longer.")
        generated = model.density.sample(found.context, int(inside.sum()), Generator().manual_seed(SEED))[0]
        for axis, images, width in zip(row, (one.x[inside], generated, one.x[~inside]), widths, strict=True):
            show_montage(axis, images.numpy(), width)
    for axis, title in zip(axes[0], ("in the cluster", "generated from its description", "the others"), strict=True):
        axis.set_title(title)
    save(figure, context.folder, "dac-emnist-filtering.png")


def draw_emnist_clusters(context: Context) -> None:
    """Draw Figure 7: the clusters found."""
    model = train_emnist(context.suite)
    figure = plt.figure(figsize=(9.6, 2.1 * N_SETS), layout="constrained")
    sets = list(islice(_character_sets(), N_SETS))
    show_clusters(
        figure.subfigures(N_SETS, 1),
        sets,
        lambda one: model.cluster(one.x, Generator().manual_seed(SEED)).labels,
        ("ARI", adjusted_rand_index),
        N_CLASSES,
    )
    save(figure, context.folder, "dac-emnist.png")
