"""Figures of TCC: training beside its relatives, and images in the clusters found."""

from statistics import mean

import numpy as np

from benchmarks.data.image_sets import test_images
from benchmarks.figures import Context
from benchmarks.figures.layout import PALETTE, PER_ROW, panels, save, show_montage
from benchmarks.lines import read_lines
from coterie import TCC
from coterie.errors import InputError
from coterie.metrics import matched_accuracy

TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
NAMES = {
    "tcc": "TCC",
    "tcc without clusters' contrast": "TCC without cluster-level loss",
    "tcc at once": "TCC without warm-up",
    "tcc at once, without x": "TCC without warm-up and x",
    "tcc as published": "TCC, published losses",
    "cc": "CC",
    "mice": "MiCE",
    "swav": "SwAV",
    "moco": "MoCo + k-means",
}
ROWS = 5
SEED = 0


def draw_tcc_course(context: Context) -> None:
    """Draw accuracy of own clusters, and of k-means on embeddings, against epochs."""
    lines = [line for line in read_lines(context.suite.results) if line["method"] in NAMES]
    longest = max((line["minutes"] for line in lines), default=0.0)
    lines = [line for line in lines if line["minutes"] == longest]
    shown = [name for name in TITLES if any(line["data"] == name for line in lines)]
    if not shown:
        raise InputError(f"{context.suite.results} is empty. Run python -m benchmarks run tcc first.")
    evaluations = context.suite["evaluations"]
    figure, axes = panels(2, len(shown), width=3.2, height=2.5, sharex="col", sharey="col")
    for column, data in enumerate(shown):
        for colour, (method, label) in zip(PALETTE, NAMES.items(), strict=False):
            courses = [line["course"] for line in lines if (line["data"], line["method"]) == (data, method)]
            # At equal intervals and at the end, without what was evaluated just before it.
            looks = list(zip(*([*each[: evaluations - 1], each[-1]] for each in courses), strict=True))
            epochs = [mean(epoch for epoch, _, _ in look) for look in looks]
            for row in (0, 1):
                values = [mean(look[row + 1] for look in each) for each in looks]
                axes[row, column].plot(epochs, values, color=colour, marker="o", markersize=2.5, label=label)
        axes[0, column].set_title(TITLES[data])
        axes[1, column].set_xlabel("epochs")
    axes[0, 0].set_ylabel("ACC, own clusters")
    axes[1, 0].set_ylabel("ACC, k-means on embeddings")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), fontsize=7, loc="outside right center")
    save(figure, context.folder, "tcc-course.png")


def draw_tcc_clusters(context: Context) -> None:
    """Draw the most and the least certain images of each cluster; trains TCC, which takes minutes."""
    for data in context.suite["data"]:
        images = test_images(data)
        model = TCC(10, random_state=SEED).fit(images.bytes)
        certainty = model.probabilities_.max(axis=1)
        x = images.x.flatten(1).numpy()
        figure, axes = panels(2, model.n_clusters_, width=1.3, height=1.0)
        for cluster in range(model.n_clusters_):
            members = np.flatnonzero(model.labels_ == cluster)
            order = members[np.argsort(-certainty[members], kind="stable")]
            for row, chosen in enumerate((order[: PER_ROW * ROWS], order[-PER_ROW * ROWS :])):
                show_montage(axes[row, cluster], x[chosen], PER_ROW, ROWS, channels=images.x.shape[1])
            axes[0, cluster].set_title(f"{len(members):,}", fontsize=8)
        accuracy = matched_accuracy(images.y, model.labels_)
        title = f"{TITLES[data]}, ACC {accuracy:.2f}: most certain images of each cluster, and least certain ones"
        figure.suptitle(title, fontsize=9)
        save(figure, context.folder, f"tcc-{data}.png")
