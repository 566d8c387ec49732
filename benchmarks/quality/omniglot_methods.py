"""What is compared on hand-written characters: how each method looks at images, and reads clusters off what it saw.

Methods are prepared when they are first needed, since most of them are trained networks.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from sklearn.cluster import KMeans, SpectralClustering
from torch import Generator, Tensor

from benchmarks.baselines.kcl_mcl import LOSSES, Objective, cluster_pairwise
from benchmarks.quality.kernel_readings import TOLD, Labels, Reading, kernel_readings
from benchmarks.quality.omniglot_models import COPIES, NETWORKS, Base, held_back_sets, trained
from benchmarks.quality.omniglot_sets import Alphabet, Task
from benchmarks.quality.records import Settings
from coterie.amortized.abc.network import AttentionBasedModel
from coterie.amortized.dac.network import DacModel
from coterie.errors import InputError
from coterie.metrics import normalized_mutual_information

SEED: Final = 0
"""Of whatever a method draws, for every set anew."""
MOST_PASSES: Final = 100
MOST_POINTS: Final = 1_000_000
MANY_CLUSTERS: Final = 100
"""Clusters that a method which must be told a number is told, where that is not known."""
STARTS: Final = 10
"""Of k-means."""
EPOCHS: Final = 300
RESTARTS: Final = 1
"""Networks of KCL and MCL that are trained side by side, and steps of each."""

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Prepared(Generic[Seen]):
    """A method that is ready."""

    look: Callable[[Alphabet], Tensor]
    """What is kept of each image of an alphabet, by itself."""
    gather: Callable[[Tensor, Int[Tensor, " N"]], Seen]
    """From that and the places of some images to what is seen of them as a set."""
    readings: Mapping[str, Reading[Seen]]
    found: Settings = field(default_factory=dict)
    """What was set by looking at alphabets that were held back."""


@dataclass(frozen=True)
class Method:
    """A method by its name in the records, with all that was set, and how to make it ready."""

    name: str
    settings: Settings
    tasks: tuple[Task, ...]
    readings: Mapping[str, bool]
    """Names, and whether each is told the number of clusters."""
    prepare: Callable[[], Prepared[Any]]


DECODINGS: Final[tuple[Literal["kernel", "robust"], ...]] = ("kernel", "robust")
"""Of anchored filtering."""
ALL_TASKS: Final[tuple[Task, ...]] = ("varying", "fixed", "whole")


def _generator() -> Generator:
    return Generator().manual_seed(SEED)


def _prepared(base: Base, model: AttentionBasedModel, views: int, at: float) -> Prepared[Tensor]:
    @torch.no_grad()
    def look(alphabet: Alphabet) -> Tensor:
        return model.encode(base.features(alphabet.pixels, views).unsqueeze(0))[0]

    @torch.no_grad()
    def gather(embedded: Tensor, index: Tensor) -> Tensor:
        return model.kernel_of(embedded[index].unsqueeze(0))[0]

    return Prepared(look, gather, kernel_readings(at), {"cut": at})


def abc(base: Base, views: int | None = None) -> Method:
    """The network that was trained end to end, looking at each image as often as it comes, or so many times."""
    looks = base.config.views if views is None else views

    @torch.no_grad()
    def prepare() -> Prepared[Tensor]:
        if views is None:
            return _prepared(base, base.head, looks, base.config.cut)
        calibrated = base.head.calibrated(held_back_sets(base, looks), normalized_mutual_information)
        return _prepared(base, base.head, looks, calibrated.cut)

    name = "abc" if views is None else f"abc-{views}-view"
    return Method(name, {"weights": base.digest, "views": looks}, ALL_TASKS, TOLD, prepare)


def on_features(name: str, base: Base, folder: Path, steps: int | None = None, copies: int = COPIES) -> Method:
    """A network that was trained on the features of the one of above."""

    def prepare() -> Prepared[Tensor]:
        model = trained(name, base, folder, steps=steps, copies=copies)
        if isinstance(model, AttentionBasedModel):
            return _prepared(base, model, base.config.views, model.config.cut)
        if not isinstance(model, DacModel):
            raise InputError(f"Nobody knows how {name!r} clusters features.")
        return Prepared(
            look=lambda alphabet: base.features(alphabet.pixels, base.config.views),
            gather=lambda features, index: features[index],
            readings={decoding: _filtering(model, decoding) for decoding in DECODINGS},
            found={"cut": model.config.cut},
        )

    is_abc = NETWORKS[name].kind is AttentionBasedModel
    return Method(
        name,
        {"weights": base.digest, "copies": copies, "steps": NETWORKS[name].training.steps if steps is None else steps},
        ALL_TASKS if is_abc else ("whole",),
        TOLD if is_abc else dict.fromkeys(DECODINGS, False),
        prepare,
    )


def _filtering(model: DacModel, decoding: Literal["kernel", "robust"]) -> Reading[Tensor]:
    """All points as anchors, or one after the other as published."""
    model = copy(model)
    model.config = replace(model.config, decoding=decoding, max_passes=MOST_PASSES, max_points=MOST_POINTS)
    return Reading(lambda features, _: model.cluster(features, _generator()).labels)


def on_pairs(objective: Objective, base: Base, folder: Path, steps: int | None = None, copies: int = COPIES) -> Method:
    """KCL or MCL: trained on each set anew, by what the pairwise network says of its pairs."""

    def prepare() -> Prepared[Tensor]:
        model = trained("pairwise", base, folder, steps=steps, copies=copies)
        if not isinstance(model, AttentionBasedModel):
            raise InputError("The pairwise network is one that makes a kernel.")

        @torch.no_grad()
        def together(features: Tensor) -> Tensor:
            return model.kernel(features.unsqueeze(0))[0]

        def read(features: Tensor, _: int) -> Labels:
            found = cluster_pairwise(
                features, together, MANY_CLUSTERS, objective, _generator(), epochs=EPOCHS, restarts=RESTARTS
            )
            return found.labels

        return Prepared(
            look=lambda alphabet: base.features(alphabet.pixels, base.config.views),
            gather=lambda features, index: features[index],
            readings={"training": Reading(read)},
        )

    of_pairs = on_features("pairwise", base, folder, steps, copies).settings
    settings = {**of_pairs, "epochs": EPOCHS, "restarts": RESTARTS}
    return Method(objective, settings, ("whole",), {"training": False}, prepare)


def on_pixels() -> list[Method]:
    """Classical methods, told k or a number that is large enough."""

    def of(name: str, settings: Settings, readings: Mapping[str, Reading[Tensor]], tasks: tuple[Task, ...]) -> Method:
        prepared = Prepared(lambda alphabet: alphabet.pixels, lambda pixels, index: pixels[index], readings)
        told = {reading: how.told for reading, how in readings.items()}
        return Method(name, settings, tasks, told, lambda: prepared)

    return [
        of("k-means", {"starts": STARTS}, {"k": Reading(_k_means, told=True)}, ALL_TASKS),
        of("k-means-many", {"starts": STARTS}, {"many": Reading(lambda x, _: _k_means(x, MANY_CLUSTERS))}, ("whole",)),
        of("spectral-rbf", {"gamma": "1 / D"}, {"k": Reading(_spectral, told=True)}, ALL_TASKS),
    ]


def _k_means(pixels: Tensor, k: int) -> Labels:
    method = KMeans(k, n_init=STARTS, random_state=SEED)
    return torch.from_numpy(method.fit_predict(pixels.numpy()).astype(np.int64))


def _spectral(pixels: Tensor, k: int) -> Labels:
    method = SpectralClustering(k, gamma=1 / pixels.shape[1], random_state=SEED)
    return torch.from_numpy(method.fit_predict(pixels.double().numpy()).astype(np.int64))


def methods(base: Base, folder: Path, steps: int | None = None, copies: int = COPIES) -> Sequence[Method]:
    """All that is compared."""
    networks = [on_features(name, base, folder, steps, copies) for name in NETWORKS]
    per_set = [on_pairs(objective, base, folder, steps, copies) for objective in LOSSES]
    return [abc(base), abc(base, 1), *networks, *per_set, *on_pixels()]
