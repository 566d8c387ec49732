"""Figures of attention-based clustering: circles (Figures 1 and 2 of its paper) and characters (Figures 4 and 3)."""

from collections.abc import Sequence
from statistics import mean
from typing import Any, Final

import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from sklearn.metrics.pairwise import rbf_kernel
from torch import Generator, Tensor

from benchmarks.data.image_sets import Alphabet, alphabets
from benchmarks.figures import Context
from benchmarks.figures.layout import COLOURS, FAINT, MARGIN, dots, matched_colours, panels, save, square_around
from benchmarks.lines import Floats, Line, read_lines
from benchmarks.protocols.circles import GIVEN_K, SPECTRAL, decode, kernels, spectral, trained
from benchmarks.protocols.omniglot import Base, end_to_end
from coterie.amortized.tasks.synthetic import CircleTasks
from coterie.errors import InputError
from coterie.metrics import adjusted_rand_index, normalized_mutual_information

SEED: Final = 5  # nothing is measured with it
SHOWN: Final = ((100, False), (50, True))  # length of each set that is drawn, and whether its circles must cross
METHODS: Final = {
    "additive": "ABC, additive",
    "multiplicative": "ABC, multiplicative",
    SPECTRAL: "spectral",
    "pairwise": "pairwise",
}
NETWORKS: Final = ("additive", "multiplicative", "pairwise")
KINDS: Final = {"any": "circles may cross", "crossing": "every circle crosses another"}
ALPHABET: Final = "Tengwar"
LETTERS: Final = 6
IMAGES_PER_ROW: Final = 20
CURVES: Final = {
    "spectral-k": "spectral, k given",
    "linkage": "linkage, k unknown",
    "eigengap": "eigengap and spectral, k unknown",
}


def draw_kernels(context: Context) -> None:
    """Draw Figure 1: sets, the kernels of networks, and clusters; only spectral clustering is given k."""
    suite, n_circles = context.suite, context.suite["circles"]
    models = {name: trained(suite, name) for name in NETWORKS}
    figure, axes = panels(2 * len(SHOWN), len(NETWORKS) + 2, width=1.9, height=1.95)
    for pair, (length, crossing) in zip(axes.reshape(len(SHOWN), 2, -1), SHOWN, strict=True):
        batch, centre, radius = CircleTasks(length, n_circles, crossing).sample_with_circles(
            1, Generator().manual_seed(SEED + length)
        )
        x, truth = batch.x[0], batch.labels[0]
        order = truth.argsort(stable=True)
        _draw_set(pair[0, 0], x, truth, truth, f"{length} points on {n_circles} circles")
        _outline(pair[0, 0], centre[0], radius[0])
        _draw_kernel(pair[1, 0], (truth.unsqueeze(1) == truth).double(), order)
        for column, name in zip(pair[:, 1:].T, NETWORKS, strict=False):
            found = kernels(models[name], batch.x)
            _draw_set(column[0], x, truth, decode(suite, models[name], "linkage", found)[0], METHODS[name])
            _draw_kernel(column[1], found[0], order)
        _draw_set(pair[0, -1], x, truth, spectral(batch.x, n_circles)[0], f"{METHODS[SPECTRAL]}, k given")
        _draw_kernel(pair[1, -1], torch.from_numpy(rbf_kernel(x.double().numpy(), gamma=1.0)), order)
    save(figure, context.folder, "abc-circles.png")


def draw_ari(context: Context) -> None:
    """Draw Figure 2: agreement with the truth against the length of sets, with k given and unknown."""
    lines = _lines(context)
    figure, axes = panels(1, len(KINDS), width=3.6, height=2.9, sharey=True)
    lengths = context.suite["lengths"]
    for axis, (kind, title) in zip(axes[0], KINDS.items(), strict=True):
        for name, colour in zip(METHODS, COLOURS, strict=False):
            for decoding, style, width in ((GIVEN_K, "-", 1.4), ("linkage", ":", 1.0)):
                points = [
                    (line["length"], mean(line["ari"]), float(np.std(line["ari"]) / np.sqrt(len(line["ari"]))))
                    for line in lines
                    if (line["sets"], line["method"], line["decoding"]) == (kind, name, decoding)
                ]
                if points:
                    label = METHODS[name] if decoding == GIVEN_K else None
                    options: dict[str, Any] = {"linestyle": style, "linewidth": width, "marker": ".", "markersize": 4}
                    axis.errorbar(*np.array(sorted(points)).T, color=colour, label=label, **options)
        axis.set(xlabel="points of a set", title=title, xticks=lengths)
        axis.grid(visible=True, axis="y", color=FAINT, linewidth=0.3)
    axes[0, 0].set_ylabel("ARI")
    axes[0, 0].plot([], [], ":", color=FAINT, linewidth=1.2, label="k unknown")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), fontsize=8, loc="outside right center")
    save(figure, context.folder, "abc-circles-ari.png")


def _lines(context: Context) -> list[Line]:
    lines = read_lines(context.suite.results)
    if not lines:
        raise InputError(f"{context.suite.results} is empty. Run python -m benchmarks run {context.suite.name} first.")
    return lines


def _draw_set(axis: Axes, x: Tensor, truth: Tensor, labels: Tensor, title: str) -> None:
    dots(axis, x.numpy(), s=7.0, c=matched_colours(truth.numpy(), labels.numpy()), linewidths=0)
    if labels is not truth:
        score = adjusted_rand_index(truth.numpy(), labels.numpy())
        title += f"\n{len(torch.unique(labels))} clusters, ARI {score:.2f}"
    axis.set_title(title, fontsize=8)
    axis.set(xticks=[], yticks=[], aspect="equal", box_aspect=1, **square_around(x, 0.55))


def _outline(axis: Axes, centre: Tensor, radius: Tensor) -> None:
    angle = torch.linspace(0.0, 2 * torch.pi, 100)
    for middle, own in zip(centre, radius, strict=True):
        circle = (middle[0] + own * angle.cos()).numpy(), (middle[1] + own * angle.sin()).numpy()
        axis.plot(*circle, color=FAINT, linewidth=0.4, zorder=0)


def _draw_kernel(axis: Axes, kernel: Tensor, order: Tensor) -> None:
    """Draw a kernel with the points of each circle side by side; white is 1."""
    axis.imshow(kernel[order][:, order].numpy(), cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
    axis.set(xticks=[], yticks=[])


def draw_omniglot_kernel(context: Context) -> None:
    """Draw Figure 4: the kernel of all images of some letters beside the truth, and the clusters found."""
    (alphabet,) = alphabets("evaluation", (ALPHABET,))
    index = (alphabet.labels < LETTERS).nonzero().squeeze(1)
    index = index[alphabet.labels[index].argsort(stable=True)]
    truth = alphabet.labels[index]
    prepared = end_to_end(context.suite, Base.load(context.suite["weights"]), "abc", {}).prepare()
    kernel: Tensor = prepared.gather(prepared.look(alphabet), index)
    same = (truth.unsqueeze(0) == truth.unsqueeze(1)).float()
    labels = prepared.decoders["linkage"](kernel, LETTERS)
    figure = plt.figure(figsize=(9.6, 6.0), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=(1.15, 1.0))
    above, below = halves
    shown = ((kernel, "probability of the same letter"), (same, "truth"), (kernel - same, "difference"))
    for axis, (matrix, title) in zip(above.subplots(1, 3), shown, strict=True):
        signed = title == "difference"
        image = axis.imshow(matrix.numpy(), cmap="RdBu_r" if signed else "magma", vmin=-1 if signed else 0, vmax=1)
        axis.set(title=title, xticks=[], yticks=[])
        above.colorbar(image, ax=axis, shrink=0.8, aspect=25, pad=0.02).ax.tick_params(labelsize=7)
    score = normalized_mutual_information(truth.numpy(), labels.numpy())
    titles = (
        f"{len(index)} images of {LETTERS} letters, a row each",
        f"{int(labels.max()) + 1} clusters, a bar after each, NMI {score:.2f}",
    )
    for axis, own, title in zip(below.subplots(1, 2), (truth, labels), titles, strict=True):
        axis.imshow(_rows_of_clusters(alphabet, index, own), cmap="gray", vmin=0, vmax=1, interpolation="antialiased")
        axis.set(title=title, xticks=[], yticks=[])
        axis.spines[:].set_visible(b=False)
    save(figure, context.folder, "abc-omniglot.png")


def _rows_of_clusters(alphabet: Alphabet, index: Tensor, labels: Tensor) -> Floats:
    """Arrange images cluster by cluster, a bar after each; a row takes another cluster if all of it fits."""
    side = alphabet.images.shape[-1] + MARGIN
    rows: list[Floats] = []
    used = IMAGES_PER_ROW
    for label in range(int(labels.max()) + 1):
        for some in torch.split(index[labels == label], IMAGES_PER_ROW):
            if used + len(some) > IMAGES_PER_ROW:
                rows.append(np.ones((side, IMAGES_PER_ROW * side + MARGIN)))
                used = 0
            for image in alphabet.images[some, 0].numpy():
                rows[-1][:-MARGIN, used * side + MARGIN : (used + 1) * side] = 1 - image / 255
                used += 1
        rows[-1][MARGIN : -2 * MARGIN, used * side : used * side + MARGIN] = 0.6
    return np.concatenate(rows)


def draw_omniglot_training(context: Context) -> None:
    """Draw Figure 3: NMI on held-out alphabets during training."""
    lines = [line for line in _lines(context) if line["method"] == "abc-in-training"]
    figure, axes = panels(1, 1, width=4.6, height=3.0)
    axis = axes[0, 0]
    for colour, (decoding, label) in zip(COLOURS, CURVES.items(), strict=False):
        points: Sequence[tuple[int, float]] = sorted(
            (line["settings"]["step"], mean(line["nmi"].values())) for line in lines if line["reading"] == decoding
        )
        axis.plot(*zip(*points, strict=True), color=colour, label=label, linewidth=1.4, marker=".", markersize=4)
    axis.set(xlabel="steps of five sets", ylabel="NMI, 100 images", xlim=(0, None))
    axis.grid(color=FAINT, alpha=0.3, linewidth=0.5)
    axis.legend(fontsize=8)
    save(figure, context.folder, "abc-omniglot-training.png")
