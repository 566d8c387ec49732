"""Figures of embeddings: agreement by corpus and number of classes, and confidence against agreement."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import mean
from typing import Final

import numpy as np

from benchmarks.figures import Context
from benchmarks.figures.layout import COLOURS, FAINT, PALETTE, panels, save
from benchmarks.lines import Line, read_lines
from benchmarks.render.blocks import calibration_error
from coterie.errors import InputError

OUT_OF_FOLD: Final = "embeddings_out_of_fold.jsonl"  # beside the results of this suite
METHODS: Final = {
    "out of fold": "Coterie, not trained on the corpus",
    "coterie": "Coterie as shipped",
    "umap-hdbscan": "UMAP + HDBSCAN",
    "umap-plscan": "UMAP + PLSCAN",
    "evoc": "EVoC",
    "kmeans-cosine": "k-means on directions, k given",
}
"""Methods by name, in the order of their colours."""
TEXTS: Final = {"texts/banking77": "banking77", "texts/bbc": "BBC", "texts/dblp": "DBLP"}
CIFAR: Final = "image-classes/cifar100-"
BAR: Final = 0.8  # width that the bars of one place share


def draw_agreement(context: Context) -> None:
    """Draw the ARI, noise assigned, on each corpus of texts, and on images by number of classes."""
    scores: dict[str, dict[str | int, list[float]]] = {name: defaultdict(list) for name in METHODS}
    for name, line in _finished(context):
        if name in scores:
            place = TEXTS.get(line["data"]) or (line["k"] if line["data"].startswith(CIFAR) else None)
            if place is not None:
                scores[name][place].append(line["metrics"]["ari_assigned"])
    shown = {name: found for name, found in scores.items() if found}
    classes = sorted({place for found in shown.values() for place in found if isinstance(place, int)})
    figure, axes = panels(1, 2, width=3.8, height=2.8, sharey=True)
    colours = dict(zip(METHODS, PALETTE, strict=False))
    width = BAR / len(shown)
    for position, (name, found) in enumerate(shown.items()):
        values = [mean(found.get(place, [0.0])) for place in TEXTS.values()]
        offset = (position - (len(shown) - 1) / 2) * width
        axes[0, 0].bar(np.arange(len(TEXTS)) + offset, values, width, color=colours[name], label=METHODS[name])
        places = [k for k in classes if k in found]
        means = [mean(found[k]) for k in places]
        axes[0, 1].plot(places, means, color=colours[name], marker="o", markersize=3, linewidth=1.2)
    axes[0, 0].set_xticks(range(len(TEXTS)), list(TEXTS.values()))
    axes[0, 0].set(ylabel="agreement with the classes (ARI)", xlabel="texts", ylim=(0, 1.02))
    axes[0, 1].set(xlabel="images: classes of CIFAR-100", xscale="log", xticks=classes, xticklabels=classes)
    axes[0, 1].minorticks_off()
    figure.legend(loc="outside upper center", ncols=2, fontsize=8)
    save(figure, context.folder, "embeddings-agreement.png")


def draw_confidence(context: Context) -> None:
    """Draw expected against true agreement, a dot per set: by judges not trained on the corpus, and as shipped."""
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, line in _finished(context):
        if "confidence" in line["metrics"] and name in {"out of fold", "coterie"}:
            groups[METHODS[name]].append((line["metrics"]["confidence"], line["metrics"]["ari"]))
    figure, axes = panels(1, len(groups), width=3.0, height=3.0, sharex=True, sharey=True)
    for axis, (title, pairs) in zip(axes.flat, groups.items(), strict=True):
        predicted: Sequence[float]
        true: Sequence[float]
        predicted, true = zip(*pairs, strict=True)
        axis.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
        axis.scatter(predicted, np.maximum(true, 0.0), s=14, color=COLOURS[0], alpha=0.7, linewidths=0)
        axis.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
        axis.set_title(f"{title}: {len(pairs)} sets, ECE {calibration_error(predicted, true):.3f}", fontsize=8)
    figure.supxlabel("confidence", fontsize=9)
    figure.supylabel("agreement with the classes (ARI)", fontsize=9)
    save(figure, context.folder, "embeddings-confidence.png")


def _finished(context: Context) -> list[tuple[str, Line]]:
    """Return every run that finished with its method, "out of fold" for judges not trained on the corpus."""
    lines = [("out of fold", line) for line in read_lines(context.suite.results.with_name(OUT_OF_FOLD))]
    lines += [(line["method"], line) for line in read_lines(context.suite.results)]
    finished = [(name, line) for name, line in lines if line["metrics"]]
    if not finished:
        raise InputError(f"{context.suite.results} is empty. Run python -m benchmarks run embeddings_unknown first.")
    return finished
