"""Figures of AMCP: effect of EM steps, training beside others, and images of unseen classes."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from matplotlib import pyplot as plt

from benchmarks.data.image_sets import image_sets
from benchmarks.figures import Context
from benchmarks.figures.layout import COLOURS, panels, save, show_clusters
from benchmarks.lines import read_lines
from benchmarks.protocols.image_sets import prepare_amcp
from coterie.metrics import matched_accuracy

N_IMAGES = 160
N_SETS = 3
VARIANTS = {
    "regular": ("amcp", *(f"amcp T={steps}" for steps in range(6))),
    "transport": tuple(f"amcp transport T={steps}" for steps in range(6)),
}
"""Networks that differ only in the number of EM steps."""


def draw_steps(context: Context) -> None:
    """Draw agreement and time against the number of EM steps."""
    every = read_lines(context.suite.results)
    lines = [line for line in every if line["scenario"] == "mog" and line["decoding"] == "faithful"]
    figure, axes = panels(1, 2, width=3.4, height=2.6)
    for colour, (kind, names) in zip(COLOURS, VARIANTS.items(), strict=False):
        for style, sets in zip(("-", "--"), dict.fromkeys(line["sets"] for line in lines), strict=False):
            own = [line for line in lines if line["sets"] == sets and line["network"] in names]
            own.sort(key=lambda line: int(line["settings"]["em_steps"]))
            steps = [int(line["settings"]["em_steps"]) for line in own]
            options: dict[str, Any] = {"color": colour, "marker": "o", "markersize": 3}
            axes[0, 0].plot(steps, [mean(_known(line["metrics"]["ari"])) for line in own], style, **options)
            label = f"{kind}, {sets.removeprefix('mog-')}"
            axes[0, 1].plot(steps, [mean(line["seconds"]) for line in own], style, label=label, **options)
    axes[0, 0].set(xlabel="T", ylabel="ARI, passes not refined")
    axes[0, 1].set(xlabel="T", ylabel="seconds per set", ylim=(0, None))
    axes[0, 1].legend(fontsize=7, loc="upper left")
    save(figure, context.folder, "amcp-steps.png")


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def draw_course(context: Context) -> None:
    """Draw agreement during training against processor time."""
    watched = {line["network"]: line for line in read_lines(context.suite.results) if line["course"]}
    figure, axes = panels(1, 1, width=4.2, height=2.8)
    for colour, (name, line) in zip(COLOURS, watched.items(), strict=False):
        minutes = [line["minutes"] * step / line["steps"] for step, _ in line["course"]]
        scores = [score for _, score in line["course"]]
        axes[0, 0].plot(minutes, scores, color=colour, marker="o", markersize=3, label=name)
    axes[0, 0].set(xlabel="minutes of training", ylabel="ARI, small sets", ylim=(0.5, 1.03))
    axes[0, 0].legend()
    save(figure, context.folder, "amcp-course.png")


def draw_digits(context: Context) -> None:
    """Draw the clusters found among digits of unseen classes."""
    _draw_clusters(context, "mnist", "amcp-digits.png")


def draw_cifar10(context: Context) -> None:
    """Draw the clusters found among CIFAR-10 images of unseen classes."""
    _draw_clusters(context, "cifar10", "amcp-cifar10.png")


def _draw_clusters(context: Context, data: str, name: str) -> None:
    _, solve = prepare_amcp(context.suite, data, "amcp")
    figure = plt.figure(figsize=(9.6, 2.3 * N_SETS), layout="constrained")
    sets = image_sets(data, "test", N_IMAGES, N_SETS, context.suite["sets"][data]["clusters"])
    show_clusters(figure.subfigures(N_SETS, 1), sets, solve, ("ACC", matched_accuracy), 2)
    save(figure, context.folder, name)
