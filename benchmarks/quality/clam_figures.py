"""Pictures of ClAM: the idea, and the paper's Figures 1, 4 and 6 to 15 made again.

    python -m benchmarks.quality.clam_figures --only basins,toys

Pictures go to docs/figures, the numbers that they show to a results file, where they replace those of an earlier run.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.optimize import linear_sum_assignment
from scipy.spatial import Voronoi, voronoi_plot_2d
from sklearn.metrics.cluster import contingency_matrix

from benchmarks.quality import clam_data, clam_sweeps, clam_toys
from benchmarks.quality.clam_toys import Solution, Toy
from benchmarks.quality.records import Floats, Labels, Record, read_records
from coterie.errors import InputError
from coterie.estimators.base import one_thread
from coterie.estimators.clam import ClAM
from coterie.ops.attraction import descend

DEFAULT_FOLDER: Final = Path("docs/figures")
DEFAULT_OUT: Final = Path("benchmarks/results/clam_figures.jsonl")
SEED: Final = 0
TOY_SEEDS: Final = range(3)
COLOURS: Final = ("#4477aa", "#ee8866", "#44aa99", "#aa4499", "#ddcc77")
INK: Final = "#222222"
FAINT: Final = "#999999"
NAMES: Final = MappingProxyType({"movlib": "MovLib", "micepe": "MicePE", "ctg": "CTG", "usps": "USPS"})
STYLE: Final = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.6,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "savefig.dpi": 130,
    "savefig.facecolor": "white",
    "legend.frameon": False,
}
Part = Callable[[Path], Iterator[Record]]


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write a picture and forget it."""
    figure.savefig(folder / name, bbox_inches="tight", pad_inches=0.06)
    plt.close(figure)


def panels(rows: int, columns: int, *, width: float = 2.1, height: float = 2.1, **options: Any) -> tuple[Figure, Any]:
    """A figure with a grid (rows, columns) of axes."""
    return plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained", **options
    )


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
            axis.scatter(*places.T, s=22, color="black", zorder=3)
            axis.set(title=f"β = {beta:g}\n{share:.1%} not to the nearest", xticks=[], yticks=[])
            settings = {"beta": beta, "steps": clam_toys.BASIN_STEPS, "grid": 500}
            toy = Toy(name, places, np.arange(len(memories)), len(memories))
            yield clam_toys.new_record(name, "clam-basins", SEED, settings, {"not_nearest": round(share, 6)}, 0.0, toy)
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
        for seed in TOY_SEEDS:
            toy = clam_toys.elongated(name, seed)
            found = _solve(toy, seed, methods)
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
    for seed in TOY_SEEDS:
        clean = clam_toys.elongated("elongated-two", seed)
        for line, toy in zip(axes, (clean, clean.with_outliers()), strict=True):
            found = _solve(toy, seed, methods)
            yield from (clam_toys.record_of(toy, solution, seed) for solution in found.values())
            if seed == TOY_SEEDS[0]:
                for axis, method in zip(line, shown, strict=True):
                    _draw_solution(axis, toy, found[method])
    save(figure, folder, "outliers.png")


def _solve(toy: Toy, seed: int, methods: Sequence[str]) -> dict[str, Solution]:
    found = [
        clam_toys.truth_of(toy),
        clam_toys.solve_kmeans(toy, seed),
        clam_toys.solve_dec(toy, seed),
        clam_toys.solve_default(toy, seed),
        *clam_toys.solve_clam(toy, seed, methods),
    ]
    return {solution.method: solution for solution in found}


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
    metrics = clam_toys.record_of(toy, solution, SEED).metrics
    inside = toy.inliers
    matched = _match(toy.y[inside], solution.labels[inside])
    axis.scatter(*toy.X[inside].T, s=5, linewidths=0, color=[COLOURS[label] for label in matched], rasterized=True)
    axis.scatter(*toy.X[~inside].T, s=26, marker="x", color="#bb0055", linewidths=1.3)
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
        axis.scatter(*place, s=26, color=fill, edgecolors=edge, linewidths=0.8, zorder=3, clip_on=False)


def _match(y: Labels, labels: Labels) -> Labels:
    """Number clusters by the classes that they share most rows with; needs as many clusters as classes."""
    classes, clusters = linear_sum_assignment(contingency_matrix(y, labels), maximize=True)
    matched: Labels = classes[np.argsort(clusters)][np.unique(labels, return_inverse=True)[1]]
    return matched


def draw_prototypes(folder: Path) -> Iterator[Record]:
    """Figure 6: prototypes of Fashion-MNIST as they are learned."""
    shown, record = clam_sweeps.prototype_history(clam_data.load("fmnist-10k"), SEED)
    framed = np.pad(shown.reshape(*shown.shape[:2], 28, 28), ((0, 0), (0, 0), (2, 2), (2, 2)), constant_values=np.nan)
    figure, axes = panels(1, 1, width=7.4, height=4.6)
    colours = mpl.colormaps["RdBu_r"].resampled(33)  # few colours make a small file
    image = axes[0, 0].imshow(
        framed.transpose(0, 2, 1, 3).reshape(32 * len(shown), -1),
        cmap=colours,
        vmin=-2.5,
        vmax=2.5,
        interpolation="none",
    )
    axes[0, 0].set_yticks([32 * row + 16 for row in range(len(shown))], clam_sweeps.EPOCHS_SHOWN)
    axes[0, 0].set(xticks=[], ylabel="epoch")
    axes[0, 0].spines[:].set_visible(False)
    axes[0, 0].tick_params(length=0)
    figure.colorbar(image, ax=axes[0, 0], shrink=0.6, aspect=30, label="standardised brightness", extend="both")
    save(figure, folder, "prototypes.png")
    yield record


def draw_sensitivity(folder: Path) -> Iterator[Record]:
    """Figures 7 to 10: what the silhouette owes to each parameter, for several T."""
    sweeps = []
    for name in clam_sweeps.SWEEP_DATA:
        sweeps.append(clam_sweeps.sweep(clam_data.load(name), SEED))
        yield from sweeps[-1].records(SEED)
    for parameter, words in clam_sweeps.AXES.items():
        figure, axes = panels(2, 3, width=2.5, height=1.9)
        for axis, sweep in zip(axes.flat, sweeps, strict=False):
            _draw_sweep(axis, sweep, parameter)
            axis.set_xlabel(words, fontsize=8)
        axes[0, 0].set_ylabel("silhouette")
        axes[1, 0].set_ylabel("silhouette")
        _explain_sweep(axes[1, 2])
        save(figure, folder, f"sensitivity-{parameter.replace('_', '-')}.png")


def _shades() -> list[Any]:
    return [mpl.colormaps["viridis"](place) for place in np.linspace(0.0, 0.85, len(clam_sweeps.SWEEP_STEPS))]


def _draw_sweep(axis: Axes, sweep: clam_sweeps.Sweep, parameter: str) -> None:
    values = sweep.values[parameter]
    places = np.arange(len(values)) if parameter == "fill" else np.array(values)
    for shade, steps in zip(_shades(), clam_sweeps.SWEEP_STEPS, strict=True):
        best, whole = sweep.best(steps, parameter)
        axis.plot(places, best, color=shade, linewidth=1.1)
        axis.plot(places, sweep.median(steps, parameter), color=shade, linewidth=0.7, linestyle="dotted")
        axis.scatter(places, best, s=14, facecolors=[shade if kept else "white" for kept in whole], edgecolors=[shade])
    axis.axhline(sweep.kmeans, color=FAINT, linewidth=1.0, linestyle="dashed", zorder=0)
    if parameter == "fill":
        axis.set_xticks(places, values)
    elif parameter != "mask_rate":
        axis.set_xscale("log")
    axis.set_title(_title(sweep.table.name))
    axis.tick_params(labelsize=7)


def _explain_sweep(axis: Axes) -> None:
    lines = [
        Line2D([], [], color=shade, label=f"T = {steps}")
        for shade, steps in zip(_shades(), clam_sweeps.SWEEP_STEPS, strict=True)
    ]
    kinds = [
        Line2D([], [], color=INK, marker="o", markersize=4, label=f"best of {clam_sweeps.RESTARTS}"),
        Line2D([], [], color=INK, marker="o", markersize=4, markerfacecolor="white", label="... with fewer clusters"),
        Line2D([], [], color=INK, linestyle="dotted", label=f"median of {clam_sweeps.RESTARTS}"),
        Line2D([], [], color=FAINT, linestyle="dashed", label="k-means"),
    ]
    axis.axis("off")
    axis.legend(handles=[*lines, *kinds], loc="center", fontsize=8)


def _title(name: str) -> str:
    return NAMES.get(name, "Fashion-MNIST" if name.startswith("fmnist") else name.capitalize())


def draw_entropy(folder: Path) -> Iterator[Record]:
    """Figure 14: how undecided the pull on the rows is."""
    figure, axes = panels(3, 3, width=2.4, height=1.6, sharex=True)
    bins = np.linspace(0.0, 1.0, 31)
    for axis, name in zip(axes.flat, clam_sweeps.ENTROPY_DATA, strict=True):
        for relative, record in clam_sweeps.entropies(clam_data.load(name), SEED):
            tabled = record.method.endswith("tabled")
            weights = np.full(len(relative), 1.0 / len(relative))
            options: dict[str, Any] = {"histtype": "step", "color": COLOURS[1], "linewidth": 1.2} if tabled else {}
            options = options or {"color": COLOURS[0], "alpha": 0.75}
            axis.hist(relative, bins, weights=weights, label="tabled β" if tabled else "default", **options)
            yield record
        axis.set_title(_title(name))
        axis.tick_params(labelsize=7)
    axes[0, 0].legend(fontsize=8)
    axes[2, 1].set_xlabel("entropy of the pull on a row, over log K")
    axes[1, 0].set_ylabel("share of the rows")
    save(figure, folder, "entropy.png")


def draw_idea(folder: Path) -> Iterator[Record]:
    """What ClAM does, in three panels: complete hidden features, flow down the energy, end in a basin."""
    rng = np.random.default_rng(SEED)
    centres = np.array([(-1.5, 0.1), (0.2, 1.6), (1.5, -1.4)])
    y = np.repeat(np.arange(3), 40)
    X = centres[y] + 0.33 * rng.normal(size=(len(y), 2))
    model = ClAM(3, beta=0.5, steps=10, mask_rate=0.5, scaling="none", random_state=SEED).fit(X)
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
        hide.scatter(*path[-1], s=12, color=[colours[row]])
        hide.scatter(*X[row], s=20, facecolors="none", edgecolors=[colours[row]], linewidths=0.9)
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
        axis.scatter(*model.table_.inverse(model.prototypes_).T, s=70, marker="*", color="black", zorder=4)
        axis.set(xticks=[], yticks=[], xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    starts = rng.uniform(-reach, reach, size=(90, 2))
    for path, label in zip(model.trajectories(starts).transpose(1, 0, 2), model.predict(starts), strict=True):
        flow.plot(*path.T, color=COLOURS[label], linewidth=0.9)
        flow.scatter(*path[-1], s=6, color=COLOURS[label], zorder=3)
    flow.set_title("recall: points go down the energy\n(dark is low) in T = 10 steps")
    _colour_regions(basin, model.predict(plane).reshape(240, 240), 3, square)
    basin.scatter(*X.T, s=7, color=colours)
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


PARTS: Final[MappingProxyType[str, Part]] = MappingProxyType(
    {
        "idea": draw_idea,
        "basins": draw_basins,
        "toys": draw_toys,
        "outliers": draw_outliers,
        "prototypes": draw_prototypes,
        "sensitivity": draw_sensitivity,
        "entropy": draw_entropy,
    }
)


def replace_records(path: Path, records: Sequence[Record]) -> None:
    """Write records to a results file, each in the place of an earlier one of the same run."""
    merged = {record.key: record for record in (*read_records(path), *records)}
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".partial")
    unfinished.write_text("".join(json.dumps(asdict(record)) + "\n" for record in merged.values()), encoding="utf-8")
    unfinished.replace(path)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.clam_figures", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="of the pictures (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="results file (default: %(default)s)")
    options = parser.parse_args(arguments)
    mpl.use("Agg")
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        for name in options.only.split(","):
            if name not in PARTS:
                raise InputError(f"Unknown part {name!r}. Known are: {', '.join(PARTS)}.")
            with mpl.rc_context(STYLE):
                records = list(PARTS[name](options.folder))
            replace_records(options.out, records)
            print(f"{name}: {len(records)} records", flush=True)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
