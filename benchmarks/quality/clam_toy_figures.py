"""Pictures of ClAM on toy data: the idea, and the paper's Figures 1, 4, 11 to 13 and 15.

Each function writes its pictures to a folder and yields the numbers that they show.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from scipy.optimize import linear_sum_assignment
from scipy.spatial import Voronoi, voronoi_plot_2d
from sklearn.metrics.cluster import contingency_matrix

from benchmarks.quality import clam_toys
from benchmarks.quality.clam_toys import Solution, Toy
from benchmarks.quality.drawing import COLOURS, FAINT, INK, dots, panels, save
from benchmarks.quality.records import Floats, Labels, Record
from coterie.clam.estimator import ClAM
from coterie.clam.model import descend

SEEDS: Final = range(3)
"""Draws of each toy that are measured; the first is drawn."""


def draw_basins(folder: Path) -> Iterator[Record]:
    """Figures 4, 11 and 12: basins of attraction against nearest memories."""
    for name, memories in (("basins-three", clam_toys.THREE_MEMORIES), ("basins-five", clam_toys.FIVE_MEMORIES)):
        nearest = clam_toys.voronoi(memories)
        figure, axes = panels(1, len(clam_toys.BETAS), width=1.9, height=2.2)
        places = np.asarray(memories)
        for axis, beta in zip(axes[0], clam_toys.BETAS, strict=True):
            drawn = clam_toys.basins(memories, beta)
            share = float((drawn != nearest).mean())
            _colour_regions(axis, drawn, len(memories), (0, 1, 0, 1))
            _outline_cells(axis, places)
            dots(axis, places, s=22, color="black", zorder=3)
            axis.set(title=f"β = {beta:g}\n{share:.1%} not to the nearest", xticks=[], yticks=[])
            settings = {"beta": beta, "steps": clam_toys.BASIN_STEPS, "grid": 500}
            toy = Toy(name, places, np.arange(len(memories)), len(memories))
            yield clam_toys.new_record(
                name, "clam-basins", SEEDS[0], settings, {"not_nearest": round(share, 6)}, 0.0, toy
            )
        save(figure, folder, f"{name}.png")


def _colour_regions(axis: Axes, labels: Labels, count: int, extent: tuple[float, float, float, float]) -> None:
    colours = ListedColormap(COLOURS[:count])
    axis.imshow(labels, origin="lower", extent=extent, cmap=colours, vmin=0, vmax=count - 1, alpha=0.45)


def _outline_cells(axis: Axes, places: Floats) -> None:
    """Borders between the places' nearest points."""
    voronoi_plot_2d(Voronoi(places), axis, show_points=False, show_vertices=False, line_colors=INK, line_width=0.7)
    for lines in axis.collections:
        lines.set_linestyle("dashed")
    axis.set(xlim=(0, 1), ylim=(0, 1))


def draw_toys(folder: Path) -> Iterator[Record]:
    """Figures 1 and 13: elongated clusters."""
    methods = [name for name in clam_toys.VARIANTS if name != "clam-manhattan"]
    shown = {
        "elongated-two": ("truth", "kmeans", "dec", "clam", "clam-mahalanobis-loss"),
        "elongated-three": ("truth", "kmeans", "dec", "clam", "clam-nearest-truth"),
        "elongated-triangle": ("truth", "kmeans", "dec", "clam", "clam-nearest-truth"),
    }
    solved: dict[str, tuple[Toy, dict[str, Solution]]] = {}
    for name in shown:
        for seed in SEEDS:
            toy = clam_toys.elongated(name, seed)
            solutions = (
                clam_toys.truth_of(toy),
                clam_toys.solve_kmeans(toy, seed),
                clam_toys.solve_dec(toy, seed),
                clam_toys.solve_default(toy, seed),
                *clam_toys.solve_clam(toy, seed, methods),
            )
            found = {solution.method: solution for solution in solutions}
            yield from (clam_toys.record_of(toy, solution, seed) for solution in found.values())
            solved.setdefault(name, (toy, found))
    for picture, rows in (("elongated-two", ["elongated-two"]), ("elongated-three", list(shown)[1:])):
        figure, axes = panels(len(rows), 5)
        for line, name in zip(axes, rows, strict=True):
            toy, found = solved[name]
            for axis, method in zip(line, shown[name], strict=True):
                _draw_solution(axis, toy, found[method])
        save(figure, folder, f"{picture}.png")


def draw_outliers(folder: Path) -> Iterator[Record]:
    """Figure 15 and Table 10: the same rows without and with outliers."""
    methods = ["clam", "clam-loss", "clam-manhattan", "clam-mahalanobis-loss"]
    shown = ("truth", "kmeans", "clam", "clam-manhattan")
    figure, axes = panels(2, len(shown), height=2.5)
    for seed in SEEDS:
        clean = clam_toys.elongated("elongated-two", seed)
        for line, toy in zip(axes, (clean, clean.with_outliers()), strict=True):
            others = (clam_toys.truth_of(toy), clam_toys.solve_kmeans(toy, seed))
            found = {solution.method: solution for solution in (*others, *clam_toys.solve_clam(toy, seed, methods))}
            yield from (clam_toys.record_of(toy, solution, seed) for solution in found.values())
            if seed == SEEDS[0]:
                for axis, method in zip(line, shown, strict=True):
                    _draw_solution(axis, toy, found[method])
    save(figure, folder, "outliers.png")


def _draw_solution(axis: Axes, toy: Toy, solution: Solution) -> None:
    titles = {
        "truth": "truth",
        "kmeans": "k-means",
        "dec": "DEC, from k-means",
        "clam": "ClAM",
        "clam-manhattan": "ClAM, Manhattan",
        "clam-mahalanobis-loss": "ClAM, Mahalanobis",
        "clam-nearest-truth": "ClAM, run nearest to truth",
    }
    metrics = clam_toys.record_of(toy, solution, SEEDS[0]).metrics
    inside = toy.inliers
    matched = _match(toy.y[inside], solution.labels[inside])
    dots(axis, toy.X[inside], s=5, linewidths=0, color=[COLOURS[label] for label in matched], rasterized=True)
    dots(axis, toy.X[~inside], s=26, marker="x", color="#bb0055", linewidths=1.3)
    silhouette = metrics["silhouette_mahalanobis"]
    score = "" if solution.method == "truth" else f"ARI {metrics['ari']:.2f}, "
    axis.set(title=f"{titles[solution.method]}\n{score}silhouette {silhouette:.2f}", xticks=[], yticks=[])
    low, high = toy.X.min(axis=0), toy.X.max(axis=0)
    margin = 0.06 * (high - low)
    low, high = low - margin, high + margin
    axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    if solution.method != "truth":
        _draw_centres(axis, solution.centres, low, high)


def _draw_centres(axis: Axes, centres: Floats, low: Floats, high: Floats) -> None:
    """Dots; those beyond the frame are hollow, on the frame where it is nearest to them."""
    for centre in centres:
        place = np.clip(centre, low, high)
        fill = "black" if np.array_equal(place, centre) else "white"
        edge = "white" if fill == "black" else "black"
        axis.scatter(place[0], place[1], s=26, color=fill, edgecolors=edge, linewidths=0.8, zorder=3, clip_on=False)


def _match(y: Labels, labels: Labels) -> Labels:
    """Number clusters by the classes that they share most rows with; needs as many clusters as classes."""
    classes, clusters = linear_sum_assignment(contingency_matrix(y, labels), maximize=True)
    matched: Labels = classes[np.argsort(clusters)][np.unique(labels, return_inverse=True)[1]]
    return matched


def draw_idea(folder: Path) -> Iterator[Record]:
    """What ClAM does, in three panels: complete hidden features, flow down the energy, end in a basin."""
    rng = np.random.default_rng(SEEDS[0])
    centres = np.array([(-1.5, 0.1), (0.2, 1.6), (1.5, -1.4)])
    y = np.repeat(np.arange(3), 40)
    X = centres[y] + 0.33 * rng.normal(size=(len(y), 2))
    model = ClAM(3, beta=0.5, steps=10, mask_rate=0.5, scaling="none", random_state=SEEDS[0]).fit(X)
    reach = 2.75
    side = np.linspace(-reach, reach, 240)
    plane = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    colours = [COLOURS[label] for label in model.labels_]
    energy = model.energy(plane).reshape(240, 240)
    figure, axes = panels(1, 3, width=2.9, height=3.1)
    hide, flow, basin = axes[0]
    some = rng.permutation(len(X))[:24]
    for row, path in zip(some, _completions(model, X[some]), strict=True):
        hide.plot(*path.T, color=colours[row], linewidth=0.9)
        dots(hide, path[-1:], s=12, color=[colours[row]])
        dots(hide, X[row : row + 1], s=20, facecolors="none", edgecolors=[colours[row]], linewidths=0.9)
    hide.axvline(float(X[:, 0].mean()), color=FAINT, linewidth=0.8, linestyle="dashed")
    hide.legend(
        handles=[
            Line2D([], [], color=INK, marker="o", markersize=4, linewidth=0.9, label="completed"),
            Line2D([], [], color=INK, marker="o", markersize=5, markerfacecolor="white", linewidth=0, label="true"),
        ],
        loc="lower left",
        fontsize=8,
    )
    hide.set_title("learning: hide a feature (here x),\ncomplete it from the fill value (dashed)")
    square = (-reach, reach, -reach, reach)
    flow.imshow(energy, origin="lower", extent=square, cmap="Greys_r", vmax=1.4 * energy.max(), alpha=0.6)
    flow.contour(side, side, energy, levels=9, colors="white", linewidths=0.5)
    for axis in (hide, flow, basin):
        dots(axis, model.table_.inverse(model.prototypes_), s=70, marker="*", color="black", zorder=4)
        axis.set(xticks=[], yticks=[], xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    starts = rng.uniform(-reach, reach, size=(90, 2))
    for path, label in zip(model.trajectories(starts).transpose(1, 0, 2), model.predict(starts), strict=True):
        flow.plot(*path.T, color=COLOURS[label], linewidth=0.9)
        dots(flow, path[-1:], s=6, color=COLOURS[label], zorder=3)
    flow.set_title("recall: points go down the energy\n(dark is low) in T = 10 steps")
    _colour_regions(basin, model.predict(plane).reshape(240, 240), 3, square)
    dots(basin, X, s=7, color=colours)
    basin.set_title("clusters: a row belongs to the\nprototype (star) that it ends near")
    save(figure, folder, "clam-idea.png")
    yield from ()


def _completions(model: ClAM, X: Floats) -> Floats:
    """Paths (rows, T + 1, 2) of rows whose first feature is hidden, from its mean to what the prototypes make of it."""
    network = model.model_
    rows = network.enter(torch.from_numpy(X.astype(np.float32))).unsqueeze(0)
    memories = network.prototypes.detach()
    moving = torch.tensor([1.0, 0.0])
    start = torch.where(moving.bool(), network.fill, rows)
    path = descend(
        start, memories, lambda v: -network.beta * torch.cdist(v, memories).square(), model.steps, moving=moving
    )
    return np.stack([network.leave(positions[0]).numpy() for positions in path], axis=1)
