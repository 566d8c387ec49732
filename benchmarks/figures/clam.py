"""Figures of ClAM on real data: evolving prototypes (Figure 6), sensitivity (7 to 10) and entropies (14).

Each parameter is varied alone, around the tabled setting of the data set (Table 6 of the paper); all settings of one
data set and one T are trained as one tensor program. The numbers that figures show go to a results file of their own.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from sklearn.cluster import KMeans
from torch import Tensor

from benchmarks.data.tables import LabelledTable, load_table
from benchmarks.figures import Context
from benchmarks.figures.clam_toys import record_line, replace_lines
from benchmarks.figures.layout import COLOURS, FAINT, INK, panels, save
from benchmarks.lines import Floats, Line
from coterie.clam.estimator import ClAM
from coterie.clam.search import Run, Search
from coterie.progress import Progress
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import as_table
from coterie.training.batches import point_batches
from coterie.training.loop import train

SEED: Final = 0
TITLES: Final = {"movlib": "MovLib", "micepe": "MicePE", "ctg": "CTG", "usps": "USPS", "fmnist-10k": "Fashion-MNIST"}
SWEEP_DATA: Final = ("zoo", "ecoli", "movlib", "ctg", "segment")
SWEEP_STEPS: Final = (2, 5, 10, 15)
RESTARTS: Final = 5
BETA_FACTORS: Final = (1 / 64, 1 / 16, 1 / 4, 1.0, 4.0, 16.0, 64.0)
VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "rate": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
    "mask_rate": (0.05, 0.1, 0.15, 0.2, 0.3, 0.5),
    "fill": ("min", "mean", "max"),
}
AXES: Final = {
    "beta": "inverse temperature β",
    "rate": "learning rate",
    "mask_rate": "mask rate",
    "fill": "fill value",
}
"""Name of a parameter in results files, and its label."""
ENTROPY_DATA: Final = ("zoo", "yale", "ecoli", "movlib", "micepe", "usps", "ctg", "segment", "fmnist-10k")
EPOCHS_SHOWN: Final = (0, 5, 10, 20, 50, 100)
IMAGE_SETTINGS: Final[dict[str, Any]] = {
    "beta": 0.005,
    "steps": 10,
    "learning_rate": 0.01,
    "mask_rate": 0.1,
    "fill": "mean",
    "batch_size": 256,
}
"""Ours for Figure 6. With the tabled fill, the largest value, pixels that are hardly ever lit are filled with up to 99
standard deviations, and all images end with two prototypes, at this beta and at the tabled one."""


def _table(context: Context, name: str) -> LabelledTable:
    return replace(load_table(context.suite["data"][name]), name=name)


def _title(name: str) -> str:
    return TITLES.get(name, name.capitalize())


def _encode(table: LabelledTable) -> tuple[Tensor, TableEncoder]:
    rows = as_table(table.X)
    encoder = TableEncoder("none").fit(rows)
    return torch.from_numpy(encoder.transform(rows)), encoder


def draw_prototypes(context: Context) -> None:
    """Draw Figure 6: prototypes of Fashion-MNIST during training."""
    shown, line = _prototype_history(_table(context, "fmnist-10k"))
    framed = np.pad(shown.reshape(*shown.shape[:2], 28, 28), ((0, 0), (0, 0), (2, 2), (2, 2)), constant_values=np.nan)
    figure, axes = panels(1, 1, width=7.4, height=4.6)
    sheet = framed.transpose(0, 2, 1, 3).reshape(32 * len(shown), -1)
    colours = mpl.colormaps["RdBu_r"].resampled(33)  # few colours make a small file
    image = axes[0, 0].imshow(sheet, cmap=colours, vmin=-2.5, vmax=2.5, interpolation="none")
    axes[0, 0].set_yticks([32 * row + 16 for row in range(len(shown))], EPOCHS_SHOWN)
    axes[0, 0].set(xticks=[], ylabel="epoch")
    axes[0, 0].spines[:].set_visible(False)
    axes[0, 0].tick_params(length=0)
    figure.colorbar(image, ax=axes[0, 0], shrink=0.6, aspect=30, label="standardised brightness", extend="both")
    save(figure, context.folder, "prototypes.png")
    replace_lines([line])


def _prototype_history(table: LabelledTable) -> tuple[Floats, Line]:
    """Return prototypes (epochs shown, K, D) of one run on images, and its loss."""
    began = time.perf_counter()
    x, encoder = _encode(table)
    generator = torch.Generator().manual_seed(SEED)
    epochs = max(EPOCHS_SHOWN)
    estimator = ClAM(table.n_clusters, n_restarts=1, init="normal", plateau=True, **IMAGE_SETTINGS)
    search = Search.from_parameters(estimator.get_params(deep=False), x, encoder)
    model = search.initial_model(x, generator)
    shown = [model.prototypes[0].detach().clone().numpy()]
    epoch_steps = -(-len(x) // search.batch_size)

    def keep(progress: Progress) -> None:
        epoch, rest = divmod(progress.step, epoch_steps)
        if rest == 0 and epoch in EPOCHS_SHOWN:
            shown.append(model.prototypes[0].detach().clone().numpy())

    batches = point_batches(x, batch_size=search.batch_size, epochs=epochs, generator=generator)
    config = replace(search.train_config, steps=epochs * epoch_steps)
    train(model, batches, config, generator=generator, callback=keep)
    losses = [float(entry[0]) / epoch_steps for entry in model.history]
    metrics: dict[str, Any] = {f"loss_epoch_{epoch}": round(losses[epoch - 1], 6) for epoch in EPOCHS_SHOWN if epoch}
    metrics["n_clusters"] = len(np.unique(model.assign(x).numpy()))
    settings = {**IMAGE_SETTINGS, "epochs": epochs}
    seconds = time.perf_counter() - began
    return np.stack(shown), record_line(table, "clam-prototypes", SEED, settings, metrics, seconds)


@dataclass(frozen=True)
class Sweep:
    """Scores of one data set for each T and parameter."""

    table: LabelledTable
    kmeans: float
    base: dict[str, Any]
    values: dict[str, tuple[Any, ...]]
    silhouette: dict[tuple[int, str], Floats]  # (values, restarts) for each (T, parameter)
    full: dict[tuple[int, str], npt.NDArray[np.bool_]]  # whether each of these kept all clusters
    seconds: float

    def best(self, steps: int, axis: str) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Best silhouette of each value, and whether that run kept all clusters; the paper let them end empty."""
        score, full = self.silhouette[steps, axis], self.full[steps, axis]
        winner = score.argmax(axis=1)[:, None]
        return np.take_along_axis(score, winner, 1)[:, 0], np.take_along_axis(full, winner, 1)[:, 0]

    def median(self, steps: int, axis: str) -> Floats:
        """Median silhouette of each value; a run that puts all rows into one cluster counts as 0."""
        medians: Floats = np.median(np.maximum(self.silhouette[steps, axis], 0.0), axis=1)
        return medians

    def lines(self) -> Iterator[Line]:
        """One line for each point of the figures."""
        for (steps, axis), scores in self.silhouette.items():
            best, whole = self.best(steps, axis)
            for index, value in enumerate(self.values[axis]):
                metrics = {
                    "silhouette_best": round(float(best[index]), 6),
                    "silhouette_median": round(float(self.median(steps, axis)[index]), 6),
                    "best_keeps_all_clusters": int(whole[index]),
                    "runs_that_keep_all_clusters": int(self.full[steps, axis][index].sum()),
                    "runs": scores.shape[1],
                    "silhouette_kmeans": round(self.kmeans, 6),
                }
                settings = {**self.base, "steps": steps, "varied": axis, axis: value}
                seconds = self.seconds / sum(len(scores) for scores in self.silhouette.values())
                yield record_line(self.table, "clam-sensitivity", SEED, settings, metrics, seconds)


def run_sweep(table: LabelledTable, tabled: dict[str, Any]) -> Sweep:
    """Vary each parameter alone, for every T."""
    began = time.perf_counter()
    # The table has beta of the authors' code, which is twice the paper's.
    base = {"beta": tabled["beta"] / 2.0, "rate": tabled["learning_rate"]}
    base |= {name: tabled[name] for name in ("mask_rate", "fill")}
    values = {"beta": tuple(base["beta"] * factor for factor in BETA_FACTORS), **VALUES}
    settings = [(axis, base | {axis: value}) for axis, tried in values.items() for value in tried]
    runs = [
        Run(table.n_clusters, "normal", one["beta"], one["rate"], one["mask_rate"], one["fill"])
        for _, one in settings
        for _ in range(RESTARTS)
    ]
    varied = np.array([axis for axis, _ in settings])
    silhouette, full = {}, {}
    for steps in SWEEP_STEPS:
        score, found = _train_runs(table, runs, steps)
        for axis in values:
            silhouette[steps, axis] = score.reshape(-1, RESTARTS)[varied == axis]
            full[steps, axis] = (found == table.n_clusters).reshape(-1, RESTARTS)[varied == axis]
    reference = table.silhouette(KMeans(table.n_clusters, n_init=50, random_state=SEED).fit_predict(table.X))
    kmeans = np.nan if reference is None else reference
    return Sweep(table, kmeans, base, values, silhouette, full, time.perf_counter() - began)


def _train_runs(table: LabelledTable, runs: Sequence[Run], steps: int) -> tuple[Floats, Floats]:
    x, encoder = _encode(table)
    batch_size = 32 if len(x) < 1000 else 128
    epochs = max(30, 600 * batch_size // len(x))
    options: dict[str, Any] = {"min_cluster_size": 0, "halving": False, "n_restarts": 1, "beta": 1.0}
    estimator = ClAM(table.n_clusters, steps=steps, epochs=epochs, batch_size=batch_size, **options)
    search = Search.from_parameters(estimator.get_params(deep=False), x, encoder)
    search.runs, search.config = [replace(run) for run in runs], replace(search.config, n_runs=len(runs))
    search.train(x, generator=torch.Generator().manual_seed(SEED))
    score = np.array([run.silhouette for run in search.runs])
    return score, np.array([run.n_clusters_found for run in search.runs], dtype=np.float64)


def draw_sensitivity(context: Context) -> None:
    """Draw Figures 7 to 10: silhouette against each parameter, for several T."""
    sweeps = [run_sweep(_table(context, name), context.suite["tabled"][name]) for name in SWEEP_DATA]
    for parameter, label in AXES.items():
        figure, axes = panels(2, 3, width=2.5, height=1.9)
        for axis, sweep in zip(axes.flat, sweeps, strict=False):
            _draw_sweep(axis, sweep, parameter)
            axis.set_xlabel(label, fontsize=8)
        axes[0, 0].set_ylabel("silhouette")
        axes[1, 0].set_ylabel("silhouette")
        _draw_legend(axes[1, 2])
        save(figure, context.folder, f"sensitivity-{parameter.replace('_', '-')}.png")
    replace_lines([line for sweep in sweeps for line in sweep.lines()])


def _shades() -> list[Any]:
    return [mpl.colormaps["viridis"](shade) for shade in np.linspace(0.0, 0.85, len(SWEEP_STEPS))]


def _draw_sweep(axis: Axes, sweep: Sweep, parameter: str) -> None:
    values = sweep.values[parameter]
    positions = np.arange(len(values)) if parameter == "fill" else np.array(values)
    for shade, steps in zip(_shades(), SWEEP_STEPS, strict=True):
        best, whole = sweep.best(steps, parameter)
        axis.plot(positions, best, color=shade, linewidth=1.1)
        axis.plot(positions, sweep.median(steps, parameter), color=shade, linewidth=0.7, linestyle="dotted")
        faces = [shade if kept else "white" for kept in whole]
        axis.scatter(positions, best, s=14, facecolors=faces, edgecolors=[shade])
    axis.axhline(sweep.kmeans, color=FAINT, linewidth=1.0, linestyle="dashed", zorder=0)
    if parameter == "fill":
        axis.set_xticks(positions, values)
    elif parameter != "mask_rate":
        axis.set_xscale("log")
    axis.set_title(_title(sweep.table.name))
    axis.tick_params(labelsize=7)


def _draw_legend(axis: Axes) -> None:
    lines = [
        Line2D([], [], color=shade, label=f"T = {steps}") for shade, steps in zip(_shades(), SWEEP_STEPS, strict=True)
    ]
    ring: dict[str, Any] = {"color": INK, "marker": "o", "markersize": 4}
    kinds = [
        Line2D([], [], label=f"best of {RESTARTS}", **ring),
        Line2D([], [], markerfacecolor="white", label="... with fewer clusters", **ring),
        Line2D([], [], color=INK, linestyle="dotted", label=f"median of {RESTARTS}"),
        Line2D([], [], color=FAINT, linestyle="dashed", label="k-means"),
    ]
    axis.axis("off")
    axis.legend(handles=[*lines, *kinds], loc="center", fontsize=8)


def draw_entropy(context: Context) -> None:
    """Draw Figure 14: entropy of the softmax over prototypes, by default and with the tabled setting."""
    figure, axes = panels(3, 3, width=2.4, height=1.6, sharex=True)
    bins = np.linspace(0.0, 1.0, 31)
    lines = []
    for axis, name in zip(axes.flat, ENTROPY_DATA, strict=True):
        table = _table(context, name)
        for method, model in _entropy_models(table, context.suite["tabled"].get(name)).items():
            relative, line = _entropy(table, method, model)
            tabled = method.endswith("tabled")
            options: dict[str, Any] = {"color": COLOURS[0], "alpha": 0.75}
            if tabled:
                options = {"histtype": "step", "color": COLOURS[1], "linewidth": 1.2}
            weights = np.full(len(relative), 1.0 / len(relative))
            axis.hist(relative, bins, weights=weights, label="tabled β" if tabled else "default", **options)
            lines.append(line)
        axis.set_title(_title(name))
        axis.tick_params(labelsize=7)
    axes[0, 0].legend(fontsize=8)
    axes[2, 1].set_xlabel("entropy of a row over log K")
    axes[1, 0].set_ylabel("fraction of the rows")
    save(figure, context.folder, "entropy.png")
    replace_lines(lines)


def _entropy(table: LabelledTable, method: str, model: ClAM) -> tuple[Floats, Line]:
    """Return the entropy of every row (Eq. 13) over its largest value."""
    began = time.perf_counter()
    entropy = model.fit(table.X).entropy(table.X).astype(np.float64)
    relative = entropy / np.log(table.n_clusters)
    metrics = {
        "silhouette": round(float(model.silhouette_), 6),
        "n_clusters": model.n_clusters_,
        "entropy_mean": round(float(entropy.mean()), 6),
        "entropy_median": round(float(np.median(entropy)), 6),
        "share_below_tenth_of_largest": round(float((relative < 0.1).mean()), 6),
    }
    settings = {"beta": model.beta_, "steps": model.steps, "scaling": model.scaling}
    return relative, record_line(table, method, SEED, settings, metrics, time.perf_counter() - began)


def _entropy_models(table: LabelledTable, tabled: dict[str, Any] | None) -> dict[str, ClAM]:
    models = {"clam-entropy-default": ClAM(table.n_clusters, random_state=SEED)}
    if tabled is not None:
        # Ten restarts, but larger batches and fewer epochs than tabled: this is a figure, not Table 1.
        models["clam-entropy-tabled"] = ClAM(
            table.n_clusters,
            code_beta=True,
            scaling="none",
            init="normal",
            n_restarts=10,
            min_cluster_size=0,
            halving=False,
            epochs=max(50, min(200, 60_000 // len(table.X))),
            random_state=SEED,
            **tabled | {"batch_size": 32 if len(table.X) < 1000 else 128},
        )
    return models
