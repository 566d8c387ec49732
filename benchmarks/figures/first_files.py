"""Figures of tables as people have them: calibration by kind, answers where there are no clusters, and noise."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes

from benchmarks.data.first_files import NOISE_PERCENT, STRUCTURELESS
from benchmarks.figures import Context
from benchmarks.figures.layout import COLOURS, FAINT, panels, save
from benchmarks.lines import Line, read_lines
from benchmarks.render.blocks import calibration_bins, calibration_error
from coterie.errors import InputError

METHODS: Final = {
    "coterie": "Coterie",
    "hdbscan-15": "HDBSCAN, min size 15",
    "gmm-bic": "Gaussian mixture, BIC",
    "kmeans-silhouette": "k-means, best silhouette",
}
"""Methods that find k, in the order of their colours."""
KINDS: Final = {"files": "files", "junk": "junk column", "gaps": "gaps", "null": "no clusters", "noise": "noise"}
HELD_OUT: Final = "judge_calibration.jsonl"  # beside the results of this suite
COLUMNS: Final = 3
BAR: Final = 0.8  # width that the bars of one place share


def draw_reliability(context: Context) -> None:
    """Draw expected against true agreement for each kind of table: a dot per table, a ring per bin."""
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for line in _finished(context):
        if line["method"] == "coterie":
            groups[KINDS[line["settings"]["kind"]]].append(_prediction(line))
    held_out = read_lines(context.suite.results.with_name(HELD_OUT))
    for line in held_out:
        newest = line["settings"]["judge"] == held_out[-1]["settings"]["judge"]
        if newest and (kind := line["metrics"].get("kind")):
            groups[f"held out: {kind.partition('/')[0]}"].append(_prediction(line))
    figure, axes = panels(-(-len(groups) // COLUMNS), COLUMNS, width=2.4, height=2.4, sharex=True, sharey=True)
    for axis in axes.flat[len(groups) :]:
        axis.set_axis_off()
    for axis, (title, pairs) in zip(axes.flat, groups.items(), strict=False):
        predicted, true = zip(*pairs, strict=True)
        bins = calibration_bins(predicted, true)
        axis.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
        axis.scatter(predicted, np.maximum(true, 0.0), s=6, color=COLOURS[0], alpha=0.3, linewidths=0)
        axis.plot(
            [one.predicted for one in bins], [one.true for one in bins], color=COLOURS[1], marker="o", markersize=4
        )
        axis.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
        axis.set_title(f"{title}: {len(pairs)}, ECE {calibration_error(predicted, true):.3f}", fontsize=8)
    figure.supxlabel("confidence", fontsize=9)
    figure.supylabel("agreement with the truth (ARI)", fontsize=9)
    save(figure, context.folder, "first-files-calibration.png")


def draw_null(context: Context) -> None:
    """Draw how often the answer is one cluster, for each kind of table without clusters, and for all others."""
    shares: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in METHODS}
    for line in _finished(context):
        kind, family = (line["settings"][name] for name in ("kind", "family"))
        if line["method"] in shares:
            place = family if kind == "null" else "tables with clusters"
            shares[line["method"]][place].append(line["metrics"]["single"])
    places = [*STRUCTURELESS, "tables with clusters"]
    shown = {name: [mean(found.get(place, [0.0])) for place in places] for name, found in shares.items() if found}
    figure, axes = panels(1, 1, width=7.5, height=2.6)
    _draw_bars(axes[0, 0], places, shown)
    axes[0, 0].set(ylabel="answers of one cluster", ylim=(0, 1.02))
    save(figure, context.folder, "first-files-null.png")


def draw_noise(context: Context) -> None:
    """Draw the agreement by share of noise, and how much of the noise of the cities is found."""
    scores: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in METHODS}
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for line in _finished(context):
        metrics, settings = line["metrics"], line["settings"]
        if line["method"] in scores and settings["kind"] == "noise" and settings["variant"].endswith("percent"):
            scores[line["method"]][settings["variant"]].append(metrics["ari_assigned"])
        if line["data"] == "noise/cities" and line["method"] in {"coterie-noise", "hdbscan-15"}:
            found[line["method"]].append((metrics["noise_recall"], metrics.get("noise_precision", 0.0)))
    shares = [f"{percent}-percent" for percent in NOISE_PERCENT]
    figure, axes = panels(1, 2, width=3.8, height=2.6, sharey=True, width_ratios=(2, 1))
    shown = {name: [mean(own.get(share, [0.0])) for share in shares] for name, own in scores.items() if own}
    _draw_bars(axes[0, 0], [f"{percent} %" for percent in NOISE_PERCENT], shown)
    axes[0, 0].set(ylabel="ARI, mean over shapes", xlabel="rows that are noise", ylim=(0, 1.02))
    both = {
        name.removesuffix("-noise"): [mean(values) for values in zip(*own, strict=True)] for name, own in found.items()
    }
    _draw_bars(axes[0, 1], ["recall", "precision"], both, legend=False)
    axes[0, 1].set(xlabel="noise of the cities")
    save(figure, context.folder, "first-files-noise.png")


def _draw_bars(axis: Axes, places: Sequence[str], shown: Mapping[str, Sequence[float]], *, legend: bool = True) -> None:
    """Draw bars of several methods side by side at each place."""
    colours = dict(zip(METHODS, COLOURS, strict=False))
    width = BAR / max(len(shown), 1)
    for position, (name, values) in enumerate(shown.items()):
        offset = (position - (len(shown) - 1) / 2) * width
        axis.bar(np.arange(len(places)) + offset, values, width, color=colours[name], label=METHODS[name])
    tilted: dict[str, Any] = {"rotation": 45, "ha": "right"} if len(places) > len(NOISE_PERCENT) else {}
    axis.set_xticks(range(len(places)), places, fontsize=8, **tilted)
    if legend:
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=8)


def _prediction(line: Line) -> tuple[float, float]:
    return line["metrics"]["confidence"], line["metrics"]["ari"]


def _finished(context: Context) -> list[Line]:
    """Return the newest line of every run that finished."""
    lines = {(line["data"], line["method"], line["seed"]): line for line in read_lines(context.suite.results)}
    finished = [line for line in lines.values() if line["metrics"]]
    if not finished:
        raise InputError(f"{context.suite.results} is empty. Run python -m benchmarks run first_files first.")
    return finished
