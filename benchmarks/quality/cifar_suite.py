"""Pictures of classes that no network was trained on, end to end from pixels: ABC's Table 4.

    python -m benchmarks.quality.cifar_suite [--methods multiplicative,kmeans-pixels] --run-folder FOLDER [--sets 200]

CIFAR-100: sets of 128 pictures of 2 to 10 of the last ten classes. All that can be chosen is chosen on nine classes
that no network was trained on either. k-means and spectral clustering are told the number of clusters, and have pixels,
or what the encoder of the multiplicative network makes of them.

The paper's score is NMI. It is high for many small clusters, even if each picture is one by itself, which is measured
too; so the cut of linkage is calibrated by ARI, which is then zero.

Training goes on where it stopped, and what the results file has already is not measured again. All on one thread.
"""

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Final, TypeAlias

import torch
from sklearn.cluster import KMeans, SpectralClustering
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.quality.cifar_data import SEEDS, HeldOutSet, Part, held_out_sets
from benchmarks.quality.cifar_networks import (
    NETWORKS,
    SHARED,
    VALIDATION_SETS,
    compared_network,
    minutes_of,
    shared_encoder,
)
from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.kernel_readings import TOLD, kernel_readings
from benchmarks.quality.networks import SEED, scored
from benchmarks.quality.records import (
    Setting,
    Settings,
    append_line,
    current_commit,
    keep_lines,
    library_versions,
    read_lines,
)
from coterie.amortized.abc.network import AttentionBasedModel
from coterie.base import one_thread

OUT: Final = Path("benchmarks/results/cifar100.jsonl")
TEST_SETS: Final = 200
PUBLISHED_SETS: Final = 10_000
STARTS: Final = 10
"""Of k-means."""
GIVES_EMBEDDINGS: Final = "multiplicative"
"""Network whose encoder's features k-means and spectral clustering have."""
READINGS: Final = ("linkage", "eigengap", "linkage-k", "spectral-k")
"""Ways from a kernel to clusters that are measured."""
BASELINE_READING: Final = "as it comes"
"""Of methods that have but one way."""

Solve: TypeAlias = Callable[[HeldOutSet], Tensor]
"""From a set to labels."""

SINGLETONS: Final = "singletons"
"""Each picture by itself."""
_SCALINGS: Final = ("none", "unit")
BASELINES: Final[Mapping[str, tuple[dict[str, Setting], ...]]] = MappingProxyType(
    {
        f"{method}-{features}": tuple(
            {"features": features, "scaling": scaling, **more} for scaling in _SCALINGS for more in options
        )
        for features in ("pixels", "embeddings")
        for method, options in (("kmeans", [{}]), ("spectral", [{"neighbours": 10}, {"neighbours": 20}]))
    }
)
"""Settings of the methods that are told the number of clusters, of which the validation sets choose one."""
METHODS: Final = (*NETWORKS, *BASELINES, SINGLETONS)


@dataclass(frozen=True)
class CifarRecord:
    """One line of the results file: a method on all sets of a part, its clusters read in one way."""

    part: Part
    method: str
    reading: str
    told: bool
    """Whether it was told the number of clusters."""
    settings: Settings
    sets_seed: int
    metrics: Mapping[str, list[float]]
    """Numbers of each set: ari, nmi, k_true, k_found."""
    seconds: list[float]
    """Processor seconds of each set, from pixels to clusters."""
    commit: str
    versions: Mapping[str, str]

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        """What makes two runs the same run; settings follow from the method."""
        return (self.part, self.method, self.reading, self.sets_seed, len(self.seconds))


@dataclass(frozen=True)
class Way:
    """A method that is ready, with one way to read clusters."""

    method: str
    reading: str
    told: bool
    settings: Settings
    solve: Solve

    def measured(self, part: Part, count: int) -> CifarRecord:
        """What it does on so many sets of a part."""
        scores = scored(held_out_sets(part, count), self.solve)
        return CifarRecord(
            part=part,
            method=self.method,
            reading=self.reading,
            told=self.told,
            settings=self.settings,
            sets_seed=SEEDS[part],
            metrics=scores.metrics,
            seconds=scores.seconds,
            commit=current_commit(),
            versions=library_versions(),
        )


def network_ways(name: str, folder: Path, readings: Sequence[str]) -> list[Way]:
    """A network, and each way to read clusters off its kernel."""
    model = compared_network(name, folder)
    settings = {
        **NETWORKS[name].settings(model),
        "minutes": minutes_of(NETWORKS[name]),
        **{f"shared.{key}": value for key, value in asdict(SHARED).items()},
        "shared.minutes": shared_encoder(folder)[1],
    }

    def way(reading: str) -> Way:
        read = kernel_readings(model.config.cut)[reading].read

        @torch.no_grad()
        def solve(one: HeldOutSet) -> Tensor:
            return read(model.kernel(one.pixels.unsqueeze(0))[0], one.n_clusters)

        return Way(name, reading, TOLD[reading], settings, solve)

    return [way(reading) for reading in readings]


def best_baseline(name: str, folder: Path, out: Path) -> Way:
    """The method as the validation sets want it; how each setting does on them is written down."""
    model = compared_network(GIVES_EMBEDDINGS, folder) if name.endswith("embeddings") else None
    ways = [baseline(name, settings, model) for settings in BASELINES[name]]
    records = [way.measured("validation", VALIDATION_SETS) for way in ways]
    for record in records:
        append_line(out, record)
    scores = [mean(record.metrics["nmi"]) for record in records]
    return ways[scores.index(max(scores))]


def baseline(name: str, settings: Settings, model: AttentionBasedModel | None) -> Way:
    """A method that is told the number of clusters, on pixels or on what the model's encoder makes of them."""

    @torch.no_grad()
    def solve(one: HeldOutSet) -> Tensor:
        x = one.pixels if model is None else model.encoder(one.pixels.unsqueeze(0))[0]
        if settings["scaling"] == "unit":
            x = normalize(x - x.mean(dim=0), dim=1)
        if "neighbours" not in settings:
            method = KMeans(one.n_clusters, n_init=STARTS, random_state=SEED)
        else:
            graph = {"affinity": "nearest_neighbors", "n_neighbors": settings["neighbours"]}
            method = SpectralClustering(one.n_clusters, random_state=SEED, **graph)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Graph is not fully connected")  # clusters apart are what is looked for
            return torch.from_numpy(method.fit_predict(x.numpy()).astype("int64"))

    return Way(name, BASELINE_READING, told=True, settings=settings, solve=solve)


def run(method: str, folder: Path, count: int, out: Path) -> None:
    """Measure a method on the test sets, in each way that the file does not have yet."""
    known = {record.key for record in read_lines(out, CifarRecord)}
    readings = READINGS if method in NETWORKS else (BASELINE_READING,)
    pending = [each for each in readings if ("test", method, each, SEEDS["test"], count) not in known]
    if not pending:
        return
    if method in NETWORKS:
        ways = network_ways(method, folder, pending)
        for way in ways:
            append_line(out, way.measured("validation", VALIDATION_SETS))
    elif method in BASELINES:
        ways = [best_baseline(method, folder, out)]
    else:
        ways = [
            Way(SINGLETONS, BASELINE_READING, told=False, settings={}, solve=lambda one: torch.arange(len(one.labels)))
        ]
    for way in ways:
        record = way.measured("test", count)
        append_line(out, record)
        scores = ", ".join(f"{name.upper()} {mean(record.metrics[name]):.3f}" for name in ("nmi", "ari"))
        print(f"{method}, {way.reading}: {scores}", flush=True)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.cifar_suite", description=__doc__)
    parser.add_argument("--methods", default=",".join(METHODS), help="names (default: %(default)s)")
    parser.add_argument("--run-folder", type=Path, required=True, help="where training is kept, to go on from")
    parser.add_argument("--sets", type=int, default=TEST_SETS, help="of the test (default: %(default)s)")
    parser.add_argument("--anew", action="store_true", help="forget what the file has of these methods")
    parser.add_argument("--out", type=Path, default=OUT, help="results file (default: %(default)s)")
    options = parser.parse_args(arguments)

    def work() -> None:
        wanted = named(options.methods, METHODS, "method")
        if options.anew:
            keep_lines(options.out, CifarRecord, lambda record: record.method not in wanted)
        for method in wanted:
            run(method, options.run_folder, options.sets, options.out)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
