"""Twin-contrast clustering beside its relatives, each trained for the same processor time on the same images.

    python -m benchmarks.quality.tcc_suite [--data mnist,cifar10] [--methods tcc,cc] [--minutes 2] [--seeds 3] [--anew]

All have the same encoder, projection, views, batches and optimiser, on one thread. How many steps fit into the time is
measured first, so that the learning rate can fall to zero at its end; what is looked at on the way is no part of the
time. What the results file has already is not measured again.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from sklearn.cluster import KMeans
from torch import Generator, Tensor

from benchmarks.baselines.cc import CcConfig, CcModel
from benchmarks.baselines.mice import MiceConfig, MiceModel
from benchmarks.baselines.moco import MocoConfig, MocoModel
from benchmarks.baselines.swav import SwavConfig, SwavModel
from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.records import (
    Labels,
    Settings,
    append_line,
    current_commit,
    keep_lines,
    library_versions,
    read_lines,
)
from benchmarks.quality.tcc_data import LOADERS, N_CLASSES, Collection, Images, images
from coterie.base import one_thread
from coterie.metrics import adjusted_rand_index, matched_accuracy, normalized_mutual_information
from coterie.tcc.model import ContrastiveModel, TccConfig, TccModel
from coterie.tcc.schedule import Course, learned

OUT: Final = Path("benchmarks/results/tcc.jsonl")
MINUTES: Final = 2.0
SEEDS: Final = 3
STARTS: Final = 5
"""Of k-means, on pixels and on what was learned."""
LOOKS: Final = 5
"""How often a model is looked at while it is trained."""
BATCH_SIZE: Final = 256
LEARNING_RATE: Final = 2e-3
TRIAL_STEPS: Final = 60
"""By which it is measured how long a step takes; so many that most are not followed by a look at the clusters."""


@dataclass(frozen=True)
class Contender:
    """A model, its settings, and how it is trained."""

    kind: type[ContrastiveModel]
    config: type[Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    warm_up: float = 0.0
    """Share of the steps after which clusters are begun at places."""
    beginnings: int = 1
    by_epoch: tuple[str, ...] = ()
    """Settings that count the steps of an epoch."""


def _tcc(**settings: Any) -> Contender:
    return Contender(TccModel, TccConfig, settings, warm_up=0.4, beginnings=3)


def _tcc_at_once(**settings: Any) -> Contender:
    return Contender(TccModel, TccConfig, settings)


PUBLISHED: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "hidden": 0,
        "temperature": 1.0,
        "cluster_temperature": 1.0,
        "sharpness": 1.0,
        "relaxation": 0.3,
        "momentum": 0.99,
        "memory": 2048,
        "in_batch": False,
        "even": "rows",
        "assigned_weight": 0.0,
    }
)
"""TCC's losses as its supplement and its authors' code have them; encoder as all, twin and memory as MoCo."""
CONTENDERS: Final[Mapping[str, Contender]] = MappingProxyType(
    {
        "tcc": _tcc(),
        "tcc without clusters' contrast": _tcc(cluster_weight=0.0),
        "tcc at once": _tcc_at_once(),
        "tcc at once, without x": _tcc_at_once(sees_rows=False),
        "tcc as published": _tcc_at_once(**PUBLISHED),
        "cc": Contender(CcModel, CcConfig),
        "mice": Contender(MiceModel, MiceConfig, by_epoch=("refreshed_every",)),
        "swav": Contender(SwavModel, SwavConfig, by_epoch=("frozen_steps",)),
        "moco": Contender(MocoModel, MocoConfig, warm_up=1.0),
    }
)
ABLATIONS: Final[Mapping[str, Contender]] = MappingProxyType(
    {
        **{f"tcc, relaxation {value:g}": _tcc(relaxation=value) for value in (0.1, 0.3, 1.5)},
        **{f"tcc, memory {length}": _tcc(memory=length) for length in (512, 2048, 8192)},
        "tcc, memory 2048, momentum 0.99": _tcc(memory=2048, momentum=0.99),
        **{f"tcc, rounds {rounds}": _tcc(rounds=rounds) for rounds in (0, 100)},
        "tcc, clusters by draws": _tcc(representation="draws"),
        "tcc, begun once": Contender(TccModel, TccConfig, warm_up=0.4),
        "tcc, without the twin's assignments": _tcc(assigned_weight=0.0),
        "tcc, temperature 0.2": _tcc(temperature=0.2),
    }
)
PIXELS: Final = "k-means on pixels"
ALL: Final[Mapping[str, Contender]] = MappingProxyType({**CONTENDERS, **ABLATIONS})


@dataclass(frozen=True)
class ViewsRecord:
    """One line of the results file: a method on the images of a collection, with one seed."""

    data: Collection
    method: str
    seed: int
    settings: Settings
    minutes: float
    """Processor time that training was given; 0 for what is not trained."""
    seconds: float
    """Processor time that it took."""
    steps: int
    epochs: float
    metrics: Mapping[str, float]
    """acc, nmi and ari of the method's own clusters, and of k-means on its places: acc_places and so on."""
    course: Sequence[tuple[float, float, float]]
    """Epochs, and the accuracy then: of the method's own clusters, and of k-means on its places."""
    commit: str
    versions: Mapping[str, str]

    @property
    def key(self) -> tuple[str, str, int, float]:
        """What makes two runs the same run."""
        return (self.data, self.method, self.seed, self.minutes)

    @property
    def looks(self) -> Sequence[tuple[float, float, float]]:
        """The course at equal intervals, and at the end, without what was seen just before it."""
        return [*self.course[: LOOKS - 1], *self.course[-1:]]


def scores(truth: Labels, labels: Labels, of: str = "") -> dict[str, float]:
    """How well clusters agree with classes."""
    return {
        f"acc{of}": round(matched_accuracy(truth, labels), 5),
        f"nmi{of}": round(normalized_mutual_information(truth, labels), 5),
        f"ari{of}": round(adjusted_rand_index(truth, labels), 5),
    }


def k_means_of(places: Tensor, seed: int, starts: int = STARTS) -> Labels:
    """Clusters of rows by k-means, told their number."""
    found: Labels = KMeans(N_CLASSES, n_init=starts, random_state=seed).fit_predict(places.numpy())
    return found


def config_of(contender: Contender, shown: Images) -> Any:
    """What the model is, for images of that shape."""
    _, channels, height, width = shown.x.shape
    epoch = len(shown.x) // BATCH_SIZE
    return contender.config(
        channels * height * width,
        N_CLASSES,
        image=(channels, height, width),
        **contender.settings,
        **dict.fromkeys(contender.by_epoch, epoch),
    )


def trained(
    contender: Contender, shown: Images, steps: int, seed: int, watch: Callable[[int, ContrastiveModel], None]
) -> ContrastiveModel:
    """The model after so many steps."""
    course = Course(
        batch_size=BATCH_SIZE,
        epoch=len(shown.x) // BATCH_SIZE,
        steps=steps,
        warm_up=contender.warm_up,
        beginnings=contender.beginnings,
        learning_rate=LEARNING_RATE,
        views=None,
        folder=None,
    )
    generator = Generator().manual_seed(seed)
    model, _ = learned(contender.kind, shown.x.flatten(1), config_of(contender, shown), course, generator, watch=watch)
    return model


def seconds_per_step(contender: Contender, shown: Images) -> float:
    """Processor time of a step."""
    times = [time.process_time()]
    trained(contender, shown, TRIAL_STEPS, 0, lambda *_: times.append(time.process_time()))
    return median(after - before for before, after in pairwise(times[1:]))


def run(data: Collection, method: str, seed: int, minutes: float) -> ViewsRecord:
    """Train and measure one method."""
    contender, shown = ALL[method], images(data)
    steps = max(LOOKS, int(60 * minutes / seconds_per_step(contender, shown)))
    epoch = len(shown.x) / BATCH_SIZE
    every = steps // LOOKS
    course: list[tuple[float, float, float]] = []
    looked = 0.0

    def look(step: int, model: ContrastiveModel) -> None:
        nonlocal looked
        if step % every or step > (LOOKS - 1) * every:
            return
        began = time.process_time()
        x = shown.x.flatten(1)
        own = matched_accuracy(shown.y, model.memberships(x).argmax(dim=1).numpy())
        by_places = matched_accuracy(shown.y, k_means_of(model.places(x), seed, starts=1))
        course.append((round(step / epoch, 2), round(own, 4), round(by_places, 4)))
        looked += time.process_time() - began

    began = time.process_time()
    model = trained(contender, shown, steps, seed, look)
    seconds = time.process_time() - began - looked
    x = shown.x.flatten(1)
    own = scores(shown.y, model.memberships(x).argmax(dim=1).numpy())
    by_places = scores(shown.y, k_means_of(model.places(x), seed), "_places")
    course.append((round(steps / epoch, 2), round(own["acc"], 4), round(by_places["acc_places"], 4)))
    settings = {key: str(value) for key, value in contender.settings.items()}
    return ViewsRecord(
        data=data,
        method=method,
        seed=seed,
        settings=settings | {"warm_up": contender.warm_up, "beginnings": contender.beginnings},
        minutes=minutes,
        seconds=round(seconds, 1),
        steps=steps,
        epochs=round(steps / epoch, 1),
        metrics={**own, **by_places},
        course=course,
        commit=current_commit(),
        versions=library_versions(),
    )


def on_pixels(data: Collection, seed: int) -> ViewsRecord:
    """k-means on the images as they are."""
    shown = images(data)
    began = time.process_time()
    labels = k_means_of(shown.x.flatten(1), seed)
    return ViewsRecord(
        data=data,
        method=PIXELS,
        seed=seed,
        settings={"starts": STARTS},
        minutes=0.0,
        seconds=round(time.process_time() - began, 1),
        steps=0,
        epochs=0.0,
        metrics=scores(shown.y, labels),
        course=[],
        commit=current_commit(),
        versions=library_versions(),
    )


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Train and measure what the file does not have yet; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.tcc_suite", description=__doc__)
    parser.add_argument("--data", default=",".join(LOADERS), help="collections (default: %(default)s)")
    parser.add_argument(
        "--methods", default=";".join((PIXELS, *ALL)), help="names, with semicolons between (default: all)"
    )
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="processor time for each training (default: %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="from 0 on (default: %(default)s)")
    parser.add_argument("--anew", action="store_true", help="forget what the file has of these methods and data")
    parser.add_argument("--out", type=Path, default=OUT, help="results file (default: %(default)s)")
    options = parser.parse_args(arguments)

    def work() -> None:
        collections = [name for name in LOADERS if name in named(options.data, LOADERS, "data")]
        methods = named(options.methods, (PIXELS, *ALL), "method", between=";")
        if options.anew:
            keep_lines(options.out, ViewsRecord, lambda one: one.method not in methods or one.data not in collections)
        for seed in range(options.seeds):
            for data in collections:
                for method in methods:
                    minutes = 0.0 if method == PIXELS else options.minutes
                    known = {record.key for record in read_lines(options.out, ViewsRecord)}
                    if (data, method, seed, minutes) in known:
                        continue
                    record = on_pixels(data, seed) if method == PIXELS else run(data, method, seed, minutes)
                    append_line(options.out, record)
                    print(f"{data}, {method}, seed {seed}: ACC {record.metrics['acc']:.3f}", flush=True)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
