"""Figures of ClAM on toy data: the idea, and the paper's Figures 1, 4, 11 to 13 and 15, and its Table 10.

The elongated clusters and the given memories are those of the authors' code. Runs are chosen without labels: by the
silhouette under the Mahalanobis distance of all rows, as that code does, or by the loss.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from scipy.spatial import Voronoi, voronoi_plot_2d
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from benchmarks.baselines import dec
from benchmarks.figures import Context
from benchmarks.figures.layout import COLOURS, FAINT, INK, dots, matched_colours, panels, save
from benchmarks.lines import RESULTS, Floats, Labels, Line, Settings, key_of, read_lines, record, write_lines
from coterie.clam.estimator import ClAM
from coterie.clam.model import ClamConfig, ClamModel, am_recursion
from coterie.clam.search import Search
from coterie.metrics import adjusted_rand_index, normalized_mutual_information, silhouettes
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import as_table

RESULTS_FILE: Final = RESULTS / "clam_figures.jsonl"
KEY: Final = ("suite", "data", "method", "seed", "settings")
SEEDS: Final = range(3)  # samples of each toy that are measured; the first is drawn
COVARIANCE: Final = ((0.0105, 0.01), (0.01, 0.0105))
"""Of every elongated cluster: standard deviations 0.143 along the diagonal and 0.022 across."""
OUTLIERS: Final = ((-0.05, -0.7), (0.1, 0.1), (0.3, -0.5))
FIVE_MEMORIES: Final = ((0.1, 0.3), (0.2, 0.1), (0.4, 0.7), (0.6, 0.5), (0.9, 0.2))
BASINS: Final = {"basins-three": FIVE_MEMORIES[1:4], "basins-five": FIVE_MEMORIES}
BETAS: Final = (2.5, 7.5, 15.0, 20.0, 37.5)  # half of 5, 15, 30, 40 and 75, since the authors' code halves beta
BASIN_STEPS: Final = 10
GRID: Final = 500
NEAR: Final = 0.95  # adjusted Rand index from which a run counts as near the truth
TOYS: Final = {
    "elongated-two": (((0.3, 0.6), (0.65, 0.6)), (275, 225)),
    "elongated-three": (((0.2, 0.5), (0.5, 0.5), (0.8, 0.5)), (275, 125, 225)),
    "elongated-triangle": (((0.3, 0.6), (0.45, 0.15), (0.65, 0.6)), (275, 125, 225)),
}
"""Means and sizes; the authors sample sizes from ranges of which these are the middles."""
# The authors' toy runs: no mask, 10 epochs, batches of 32, T = 10, random starts, and a grid of beta and rate.
_AUTHORS: Final[dict[str, Any]] = {
    "objective": "unmasked",
    "metric": "euclidean",
    "beta": (0.005, 0.05, 0.5, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0),
    "learning_rate": (1e-3, 1e-2, 1e-1),
    "steps": 10,
    "epochs": 10,
    "batch_size": 32,
    "n_restarts": 20,
    "init": "normal",
}
SEARCHES: Final[dict[str, dict[str, Any]]] = {
    "authors": _AUTHORS,
    "masked": _AUTHORS | {"objective": "masked"},
    "manhattan": _AUTHORS | {"metric": "manhattan"},
    "mahalanobis": {"objective": "unmasked", "metric": "mahalanobis", "steps": 10, "epochs": 30, "batch_size": 32},
}
VARIANTS: Final = {
    "clam": ("authors", "silhouette"),
    "clam-loss": ("authors", "loss"),
    "clam-masked": ("masked", "silhouette"),
    "clam-manhattan": ("manhattan", "silhouette"),
    "clam-mahalanobis": ("mahalanobis", "silhouette"),
    "clam-mahalanobis-loss": ("mahalanobis", "loss"),
    "clam-nearest-truth": ("authors", "labels"),
}
"""Search and selection rule. "labels" is not a clustering method: it shows the best run that there was."""
TITLES: Final = {
    "truth": "truth",
    "kmeans": "k-means",
    "dec": "DEC, from k-means",
    "clam": "ClAM",
    "clam-manhattan": "ClAM, Manhattan",
    "clam-mahalanobis-loss": "ClAM, Mahalanobis",
    "clam-nearest-truth": "ClAM, run nearest to truth",
}


@dataclass(frozen=True)
class Toy:
    """Elongated clusters; outliers come last and have the label -1."""

    name: str
    X: Floats
    y: Labels
    n_clusters: int

    @classmethod
    def sample(cls, name: str, seed: int) -> "Toy":
        """Sample one of `TOYS`."""
        means, sizes = TOYS[name]
        rng = np.random.default_rng(seed)
        pairs = zip(means, sizes, strict=True)
        X = np.vstack([rng.multivariate_normal(mean, COVARIANCE, size) for mean, size in pairs])
        return cls(name, X, np.repeat(np.arange(len(means)), sizes), len(means))

    @property
    def inliers(self) -> npt.NDArray[np.bool_]:
        """Rows that belong to a cluster."""
        inside: npt.NDArray[np.bool_] = self.y >= 0
        return inside

    def with_outliers(self) -> "Toy":
        """Append three distant rows."""
        y = np.concatenate([self.y, np.full(len(OUTLIERS), -1)])
        return replace(self, name=f"{self.name}-outliers", X=np.vstack([self.X, OUTLIERS]), y=y)

    def agreement(self, labels: Labels) -> Floats:
        """Adjusted Rand index of each partition (R, N) with the truth, without outliers."""
        inside = self.inliers
        return np.array([adjusted_rand_index(self.y[inside], partition[inside]) for partition in labels])


@dataclass(frozen=True)
class Solution:
    """A partition of a toy, and how it was found."""

    method: str
    labels: Labels
    centres: Floats
    settings: Settings
    seconds: float
    counts: dict[str, int] = field(default_factory=dict)  # of the runs that it was chosen from

    def line(self, toy: Toy, seed: int) -> Line:
        """Score the inliers."""
        inside = toy.inliers
        X, y, labels = toy.X[inside], toy.y[inside], self.labels[inside]
        scores = {
            "silhouette": silhouettes(X, labels[None])[0],
            "silhouette_mahalanobis": _mahalanobis_silhouettes(X, labels[None])[0],
            "nmi": normalized_mutual_information(y, labels),
            "ari": adjusted_rand_index(y, labels),
        }
        metrics = {name: round(float(score), 6) for name, score in scores.items()} | self.counts
        return record_line(toy, self.method, seed, self.settings, metrics, self.seconds)


def record_line(table: Any, method: str, seed: int, settings: Settings, metrics: Any, seconds: float) -> Line:
    """Make a line of the results file of the figures, about a toy or a table."""
    n, d = table.X.shape
    line = record("clam-figures", table.name, method, seed, settings, n=n, d=d, k=table.n_clusters)
    return line | {"metrics": metrics, "seconds": round(seconds, 4)}


def replace_lines(lines: Sequence[Line]) -> None:
    """Write lines to the results file, in the position of earlier lines of the same run."""
    merged = {key_of(line, KEY): line for line in (*read_lines(RESULTS_FILE), *lines)}
    write_lines(RESULTS_FILE, merged.values())


def _mahalanobis_silhouettes(X: Floats, labels: Labels) -> npt.NDArray[np.float64]:
    """Silhouettes of partitions (R, N) by the distances of whitened rows."""
    root = np.linalg.cholesky(np.linalg.inv(np.cov(X.T)))
    return silhouettes(X @ root, labels)


def _truth(toy: Toy) -> Solution:
    means = np.stack([toy.X[toy.y == label].mean(axis=0) for label in range(toy.n_clusters)])
    return Solution("truth", np.where(toy.inliers, toy.y, toy.n_clusters), means, {}, 0.0)


def _solve_kmeans(toy: Toy, seed: int) -> Solution:
    began = time.perf_counter()
    model = KMeans(toy.n_clusters, n_init=100, random_state=seed).fit(toy.X)
    return Solution("kmeans", model.labels_, model.cluster_centers_, {"n_init": 100}, time.perf_counter() - began)


def _solve_dec(toy: Toy, seed: int) -> Solution:
    """Run DEC from the centres of k-means, its update interval chosen as ClAM's runs are."""
    began = time.perf_counter()
    z = torch.from_numpy(toy.X)
    start = dec.mean_centres(z, _solve_kmeans(toy, seed).labels).unsqueeze(0)
    configs = [dec.DecConfig(interval, max_iter=2000) for interval in dec.UPDATE_INTERVALS]
    found = [dec.train(z, start, config)[0].numpy() for config in configs]
    best = int(_mahalanobis_silhouettes(toy.X, np.stack(found)).argmax())
    settings = {"start": "kmeans", "update_interval": dec.UPDATE_INTERVALS[best], "max_iter": 2000}
    centres = dec.mean_centres(z, found[best]).numpy()
    return Solution("dec", found[best], centres, settings, time.perf_counter() - began)


def _solve_default(toy: Toy, seed: int) -> Solution:
    began = time.perf_counter()
    model = ClAM(toy.n_clusters, random_state=seed).fit(toy.X)
    prototypes = model.table_.inverse_transform(model.prototypes_)
    return Solution("clam-default", model.labels_, prototypes, {"beta": model.beta_}, time.perf_counter() - began)


def _solve_clam(toy: Toy, seed: int, methods: Sequence[str]) -> list[Solution]:
    """Solve by some of `VARIANTS`; those of the same search choose from the same runs."""
    solutions = {}
    for name in dict.fromkeys(VARIANTS[method][0] for method in methods):
        began = time.perf_counter()
        rows = as_table(toy.X)
        encoder = TableEncoder("none").fit(rows)
        x = torch.from_numpy(encoder.transform(rows))
        estimator = ClAM(toy.n_clusters, min_cluster_size=0, halving=False, **SEARCHES[name])
        search = Search.from_parameters(estimator.get_params(deep=False), x, encoder)
        generator = torch.Generator().manual_seed(seed)
        model = search.train(x, generator=generator)
        # What the same number of untrained runs makes of the rows.
        starts, labels = search.initial_model(x, generator).assign(x).numpy(), model.assign(x).numpy()
        near = {
            "runs_near_truth": int((toy.agreement(labels) > NEAR).sum()),
            "starts_near_truth": int((toy.agreement(starts) > NEAR).sum()),
        }
        seconds = time.perf_counter() - began
        for method in (each for each in methods if VARIANTS[each][0] == name):
            rule = VARIANTS[method][1]
            chosen = _choose(toy, search, labels, rule)
            run, best = search.runs[chosen], search.best_model(model, x, chosen)
            settings: dict[str, Any] = {"search": name, "rule": rule, "runs": len(labels), "beta": round(run.beta, 6)}
            settings |= {"rate": run.learning_rate, "start": run.init}
            prototypes = best.from_memory_space(best.prototypes[0].detach()).numpy()
            own = best.assign(x)[0].numpy()
            solutions[method] = Solution(method, own, prototypes, settings, seconds, near)
    return [solutions[method] for method in methods]


def _choose(toy: Toy, search: Search, labels: Labels, rule: str) -> int:
    """Choose the best run; those with a cluster of less than half an equal size come last."""
    sizes = (labels[:, :, None] == np.arange(toy.n_clusters)).sum(axis=1)
    balanced = sizes.min(axis=1) >= len(toy.X) / (2 * toy.n_clusters)
    if rule == "loss":
        merit = -np.array([run.loss for run in search.runs])
    else:
        merit = toy.agreement(labels) if rule == "labels" else _mahalanobis_silhouettes(toy.X, labels)
    return int(np.lexsort((-merit, ~balanced))[0])


def draw_basins(context: Context) -> None:
    """Draw Figures 4, 11 and 12: basins of attraction against nearest memories."""
    side = np.arange(GRID) / GRID
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    lines = []
    for name, memories in BASINS.items():
        positions = np.asarray(memories)
        nearest = cdist(grid, positions).argmin(axis=1)
        figure, axes = panels(1, len(BETAS), width=1.9, height=2.2)
        for axis, beta in zip(axes[0], BETAS, strict=True):
            model = ClamModel(ClamConfig(n_features=2, n_prototypes=len(memories), steps=BASIN_STEPS))
            with torch.no_grad():
                model.prototypes.copy_(torch.tensor(memories))
                model.beta.fill_(beta)
            basin = model.assign(torch.from_numpy(grid.astype(np.float32)))[0].numpy()
            fraction = float((basin != nearest).mean())
            _colour_regions(axis, basin.reshape(GRID, GRID), len(memories), (0, 1, 0, 1))
            voronoi_plot_2d(
                Voronoi(positions), axis, show_points=False, show_vertices=False, line_colors=INK, line_width=0.7
            )
            for borders in axis.collections:
                borders.set_linestyle("dashed")
            dots(axis, positions, s=22, color="black", zorder=3)
            title = f"β = {beta:g}\n{fraction:.1%} not to the nearest"
            axis.set(xlim=(0, 1), ylim=(0, 1), title=title, xticks=[], yticks=[])
            toy = Toy(name, positions, np.arange(len(memories)), len(memories))
            settings = {"beta": beta, "steps": BASIN_STEPS, "grid": GRID}
            metrics = {"not_nearest": round(fraction, 6)}
            lines.append(record_line(toy, "clam-basins", SEEDS[0], settings, metrics, 0.0))
        save(figure, context.folder, f"{name}.png")
    replace_lines(lines)


def _colour_regions(axis: Axes, labels: Labels, count: int, extent: tuple[float, float, float, float]) -> None:
    colours = ListedColormap(COLOURS[:count])
    axis.imshow(labels, origin="lower", extent=extent, cmap=colours, vmin=0, vmax=count - 1, alpha=0.45)


def draw_toys(context: Context) -> None:
    """Draw Figures 1 and 13: elongated clusters."""
    shown = {
        "elongated-two": ("truth", "kmeans", "dec", "clam", "clam-mahalanobis-loss"),
        "elongated-three": ("truth", "kmeans", "dec", "clam", "clam-nearest-truth"),
        "elongated-triangle": ("truth", "kmeans", "dec", "clam", "clam-nearest-truth"),
    }
    methods = [name for name in VARIANTS if name != "clam-manhattan"]
    solved: dict[str, tuple[Toy, dict[str, Solution]]] = {}
    lines = []
    for name in shown:
        for seed in SEEDS:
            toy = Toy.sample(name, seed)
            others = (_truth(toy), _solve_kmeans(toy, seed), _solve_dec(toy, seed), _solve_default(toy, seed))
            found = {one.method: one for one in (*others, *_solve_clam(toy, seed, methods))}
            lines += [solution.line(toy, seed) for solution in found.values()]
            solved.setdefault(name, (toy, found))
    for figure_name, rows in (("elongated-two", ["elongated-two"]), ("elongated-three", list(shown)[1:])):
        figure, axes = panels(len(rows), 5)
        for row, name in zip(axes, rows, strict=True):
            toy, found = solved[name]
            for axis, method in zip(row, shown[name], strict=True):
                _draw_solution(axis, toy, found[method])
        save(figure, context.folder, f"{figure_name}.png")
    replace_lines(lines)


def draw_outliers(context: Context) -> None:
    """Draw Figure 15, with the numbers of Table 10: the same rows without and with outliers."""
    methods = ["clam", "clam-loss", "clam-manhattan", "clam-mahalanobis-loss"]
    shown = ("truth", "kmeans", "clam", "clam-manhattan")
    figure, axes = panels(2, len(shown), height=2.5)
    lines = []
    for seed in SEEDS:
        clean = Toy.sample("elongated-two", seed)
        for row, toy in zip(axes, (clean, clean.with_outliers()), strict=True):
            solutions = (_truth(toy), _solve_kmeans(toy, seed), *_solve_clam(toy, seed, methods))
            found = {solution.method: solution for solution in solutions}
            lines += [solution.line(toy, seed) for solution in solutions]
            if seed == SEEDS[0]:
                for axis, method in zip(row, shown, strict=True):
                    _draw_solution(axis, toy, found[method])
    save(figure, context.folder, "outliers.png")
    replace_lines(lines)


def _draw_solution(axis: Axes, toy: Toy, solution: Solution) -> None:
    metrics = solution.line(toy, SEEDS[0])["metrics"]
    inside = toy.inliers
    colours = matched_colours(toy.y[inside], solution.labels[inside])
    dots(axis, toy.X[inside], s=5, linewidths=0, color=colours, rasterized=True)
    dots(axis, toy.X[~inside], s=26, marker="x", color="#bb0055", linewidths=1.3)
    score = "" if solution.method == "truth" else f"ARI {metrics['ari']:.2f}, "
    title = f"{TITLES[solution.method]}\n{score}silhouette {metrics['silhouette_mahalanobis']:.2f}"
    low, high = toy.X.min(axis=0), toy.X.max(axis=0)
    margin = 0.06 * (high - low)
    low, high = low - margin, high + margin
    axis.set(title=title, xticks=[], yticks=[], xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    for centre in solution.centres if solution.method != "truth" else []:
        # Centres beyond the frame are hollow, on the nearest point of the frame.
        position = np.clip(centre, low, high)
        fill, edge = ("black", "white") if np.array_equal(position, centre) else ("white", "black")
        options: dict[str, Any] = {"linewidths": 0.8, "zorder": 3, "clip_on": False}
        axis.scatter(position[0], position[1], s=26, color=fill, edgecolors=edge, **options)


def draw_idea(context: Context) -> None:
    """Draw what ClAM does, in three panels: complete hidden features, descend the energy, end in a basin."""
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
    handles = [
        Line2D([], [], color=INK, marker="o", markersize=4, linewidth=0.9, label="completed"),
        Line2D([], [], color=INK, marker="o", markersize=5, markerfacecolor="white", linewidth=0, label="true"),
    ]
    hide.legend(handles=handles, loc="lower left", fontsize=8)
    hide.set_title("learning: hide a feature (here x),\ncomplete it from the fill value (dashed)")
    square = (-reach, reach, -reach, reach)
    flow.imshow(energy, origin="lower", extent=square, cmap="Greys_r", vmax=1.4 * energy.max(), alpha=0.6)
    flow.contour(side, side, energy, levels=9, colors="white", linewidths=0.5)
    for axis in (hide, flow, basin):
        dots(axis, model.table_.inverse_transform(model.prototypes_), s=70, marker="*", color="black", zorder=4)
        axis.set(xticks=[], yticks=[], xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    starts = rng.uniform(-reach, reach, size=(90, 2))
    for path, label in zip(model.trajectories(starts).transpose(1, 0, 2), model.predict(starts), strict=True):
        flow.plot(*path.T, color=COLOURS[label], linewidth=0.9)
        dots(flow, path[-1:], s=6, color=COLOURS[label], zorder=3)
    flow.set_title("recall: points descend the energy\n(dark is low) in T = 10 steps")
    _colour_regions(basin, model.predict(plane).reshape(240, 240), 3, square)
    dots(basin, X, s=7, color=colours)
    basin.set_title("clusters: a row belongs to the\nprototype (star) that it ends near")
    save(figure, context.folder, "clam-idea.png")


def _completions(model: ClAM, X: Floats) -> Floats:
    """Return paths (rows, T + 1, 2) of rows whose first feature is hidden, from its mean to its completion."""
    network = model.model_
    rows = network.to_memory_space(torch.from_numpy(X.astype(np.float32))).unsqueeze(0)
    memories = network.prototypes.detach()
    moving = torch.tensor([1.0, 0.0])
    start = torch.where(moving.bool(), network.fill, rows)

    def logits(v: torch.Tensor) -> torch.Tensor:
        return -network.beta * torch.cdist(v, memories).square()

    path = am_recursion(start, memories, logits, model.steps, moving=moving)
    return np.stack([network.from_memory_space(positions[0]).numpy() for positions in path], axis=1)
