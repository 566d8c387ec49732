"""AMCP's variants beside the networks that it is compared with, each trained for the same processor time.

    python -m benchmarks.quality.amcp_networks [--minutes 2] [--networks "amcp,amcp T=1"] [--anew]

All networks of a scenario see the same kind of sets, fewer than 300 points of up to four clusters, 24 in a step, on one
thread. How many steps fit into the time is measured first, so that the learning rate can fall to zero at its end. Then
they cluster sets that no table has, small ones and ones with many more points and clusters than in training. What was
found is left as the passes made it ("faithful"), may move between clusters after each pass ("star"), or is put right
in the end ("robust"). What the results file has already is not measured again.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Generator

from benchmarks.baselines.ncp import NcpConfig, NcpModel
from benchmarks.baselines.set_transformer import ActStConfig, ActStModel
from benchmarks.quality import dac_methods
from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.dac_methods import NO_LIMIT, Answer, Solve
from benchmarks.quality.dac_sets import LabelledSet, Sets, mixtures, warped
from benchmarks.quality.dac_suite import measured
from benchmarks.quality.networks import SEED, Network, n_parameters, one_cycle, seconds_per_step, trained
from benchmarks.quality.records import Settings, append_line, current_commit, keep_lines, library_versions, read_lines
from coterie.amortized.amcp.config import AmcpConfig
from coterie.amortized.amcp.network import AmcpModel
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel
from coterie.amortized.filtering import FilteringModel
from coterie.amortized.tasks.synthetic import MixturesOfGaussians, WarpedGaussians
from coterie.base import one_thread
from coterie.metrics import adjusted_rand_index
from coterie.nn.model import SetModel, TaskSampler
from coterie.progress import Progress

OUT: Final = Path("benchmarks/results/amcp_networks.jsonl")
MINUTES: Final = 2.0
SETS_SEED: Final = 3002
"""Of the sets that the networks are compared on, which no table has."""
WATCHED_SEED: Final = 3003
"""Of the sets that some of them are watched with while they are trained."""
BATCHES: Final = 5
WATCHES: Final = 8
"""How often that is."""
BATCH_SIZE: Final = 24
MAX_POINTS: Final = 300
MAX_CLUSTERS: Final = 4
POINTWISE_SETS: Final = 10
"""Large sets that NCP is measured on, since it goes from point to point."""


@dataclass(frozen=True)
class Scenario:
    """What networks are trained on, and the sets that they are compared on."""

    tasks: TaskSampler
    sets: tuple[Sets, ...]


SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType(
    {
        "mog": Scenario(
            MixturesOfGaussians(max_points=MAX_POINTS, max_clusters=MAX_CLUSTERS),
            (mixtures(1000, 4, SETS_SEED, BATCHES), mixtures(3000, 12, SETS_SEED, BATCHES)),
        ),
        "warped": Scenario(
            WarpedGaussians(max_points=MAX_POINTS, max_clusters=MAX_CLUSTERS),
            (warped(1000, 4, SETS_SEED, BATCHES), warped(3000, 12, SETS_SEED, BATCHES)),
        ),
    }
)


@dataclass(frozen=True)
class Contender:
    """A network, the scenario that it is for, and how often it is watched while it is trained."""

    scenario: str
    network: Network[SetModel]
    watched: bool = False


SMALL: Final[dict[str, Any]] = {"width": 32, "hidden": 64}
"""AMCP with about as many parameters as DAC as it ships."""
DAC_AS_IT_SHIPS: Final[dict[str, Any]] = {"width": 48, "depth": 2, "mask_depth": 1}


def _contender(
    kind: type[SetModel], config: Any, *, scenario: str = "mog", learning_rate: float = 1e-3, watched: bool = False
) -> Contender:
    return Contender(scenario, Network(kind, config, one_cycle(1, learning_rate), BATCH_SIZE), watched)


def _amcp(**settings: Any) -> Contender:
    return _contender(AmcpModel, AmcpConfig(2, **(SMALL | settings)))


CONTENDERS: Final[Mapping[str, Contender]] = MappingProxyType(
    {
        "amcp": replace(_amcp(), watched=True),
        **{f"amcp T={steps}": _amcp(em_steps=steps) for steps in (0, 1, 2, 4, 5)},
        **{f"amcp transport T={steps}": _amcp(e_step="transport", em_steps=steps) for steps in (1, 3, 5)},
        "amcp linear kernel": _amcp(kernel="linear"),
        "amcp neural kernel": _amcp(kernel="neural"),
        "amcp decoded references": _amcp(references="decoded"),
        "amcp all clusters in turn": _amcp(moments=0),
        "amcp anchored": _amcp(filtering="anchored"),
        "amcp strays": _amcp(strays=0.1),
        "amcp faithful": _contender(AmcpModel, AmcpConfig.faithful(2)),
        "dac": _contender(DacModel, DacConfig(2, **DAC_AS_IT_SHIPS), watched=True),
        "act-st": _contender(ActStModel, ActStConfig(2)),
        "ncp": _contender(NcpModel, NcpConfig(2), watched=True),
        "amcp warped": _contender(AmcpModel, AmcpConfig(2, density="flow", **SMALL), scenario="warped"),
        "amcp warped T=0": _contender(AmcpModel, AmcpConfig(2, density="flow", em_steps=0, **SMALL), scenario="warped"),
        "amcp warped transport": _contender(
            AmcpModel, AmcpConfig(2, density="flow", e_step="transport", **SMALL), scenario="warped"
        ),
        "dac warped": _contender(DacModel, DacConfig(2, density="flow", **DAC_AS_IT_SHIPS), scenario="warped"),
        "act-st warped": _contender(ActStModel, ActStConfig(2), scenario="warped"),
        "ncp warped": _contender(NcpModel, NcpConfig(2), scenario="warped"),
    }
)


@dataclass(frozen=True)
class ContenderRecord:
    """One line of the results file: a network on some sets, its clusters decoded in one way."""

    network: str
    scenario: str
    settings: Settings
    minutes: float
    """Processor time that it was given for training."""
    steps: int
    """How many steps fitted into it."""
    loss: float
    """Mean of the last twentieth of the steps."""
    course: Sequence[tuple[int, float]]
    """Steps, and the mean ARI then of sets as in training; of few networks."""
    sets: str
    sets_seed: int
    decoding: str
    metrics: Mapping[str, list[float | None]]
    """Numbers of each set: ari, nmi, k_true, k_found, and ll where there is a density."""
    seconds: list[float]
    """Processor seconds of each set."""
    commit: str
    versions: Mapping[str, str]


def decodings(model: SetModel) -> dict[str, Solve]:
    """The ways in which a network finds clusters."""
    if isinstance(model, ActStModel):
        return {"as it comes": dac_methods.act_st_solver(model)}
    if not isinstance(model, FilteringModel):
        return {"as it comes": lambda one: Answer(model.cluster(one.x, Generator().manual_seed(SEED)).labels)}
    ways: dict[str, dict[str, Any]] = {"faithful": {"decoding": "faithful", "max_points": NO_LIMIT}}
    if isinstance(model, AmcpModel):
        ways["star"] = ways["faithful"] | {"update_previous": True}
    if model.config.decoding == "robust":
        ways["robust"] = {}
    return {name: dac_methods.solver(_with_config(model, **changed)) for name, changed in ways.items()}


def _with_config(model: FilteringModel, **changed: Any) -> FilteringModel:
    """A network with the same weights and some other settings."""
    other = type(model)(replace(model.config, **changed)).eval()  # type: ignore[type-var]
    other.load_state_dict(model.state_dict())
    return other


def watched_ari(model: SetModel, sets: Sequence[LabelledSet]) -> dict[str, float]:
    """Mean agreement on the sets that a network is watched with."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        found = [model.cluster(one.x, Generator().manual_seed(SEED)).labels for one in sets]
    model.train(was_training)
    return {
        "ari": mean(adjusted_rand_index(one.y.numpy(), labels.numpy()) for one, labels in zip(sets, found, strict=True))
    }


def run(name: str, minutes: float, report: Callable[[ContenderRecord], None]) -> None:
    """Train one network for that long, and cluster with it."""
    contender = CONTENDERS[name]
    scenario, network = SCENARIOS[contender.scenario], contender.network
    steps = max(20, int(60 * minutes / seconds_per_step(network, scenario.tasks)))
    losses: list[float] = []
    course: list[tuple[int, float]] = []

    def note(progress: Progress) -> None:
        losses.append(progress.loss)
        if progress.evaluation is not None:
            course.append((progress.step, round(progress.evaluation["ari"], 4)))

    shown = [one for batch in mixtures(MAX_POINTS, MAX_CLUSTERS, WATCHED_SEED, 2).draw() for one in batch]
    every = max(1, steps // WATCHES) if contender.watched else 0
    timed = replace(network, training=replace(network.training, steps=steps, evaluate_every=every))
    model = trained(
        name,
        timed,
        scenario.tasks,
        on_log=note,
        watch=(lambda network: watched_ari(network, shown)) if contender.watched else None,
    )
    tail = losses[-max(1, steps // 20) :]
    for sets in scenario.sets:
        drawn = [one for batch in sets.draw() for one in batch]
        if isinstance(model, NcpModel) and sets is scenario.sets[-1]:
            drawn = drawn[:POINTWISE_SETS]
        for decoding, solve in decodings(model).items():
            solve(drawn[0])  # what is only slow the first time is no part of the time
            metrics, seconds = measured(drawn, solve)
            report(
                ContenderRecord(
                    network=name,
                    scenario=contender.scenario,
                    settings={key: json.dumps(value) for key, value in asdict(network.config).items()}
                    | {"parameters": n_parameters(model), "learning_rate": network.training.learning_rate},
                    minutes=minutes,
                    steps=steps,
                    loss=round(mean(tail), 4),
                    course=course,
                    sets=sets.name,
                    sets_seed=sets.seed,
                    decoding=decoding,
                    metrics=metrics,
                    seconds=seconds,
                    commit=current_commit(),
                    versions=library_versions(),
                )
            )


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Train and measure what the file does not have yet; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.amcp_networks", description=__doc__)
    parser.add_argument("--networks", default=",".join(CONTENDERS), help="names (default: all)")
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="processor time for each network (default: %(default)s)"
    )
    parser.add_argument("--anew", action="store_true", help="forget what the file has of these networks")
    parser.add_argument("--out", type=Path, default=OUT, help="results file (default: %(default)s)")
    options = parser.parse_args(arguments)

    def report(record: ContenderRecord) -> None:
        append_line(options.out, record)
        score = mean(value for value in record.metrics["ari"] if value is not None)
        print(f"{record.network}, {record.sets}, {record.decoding}: ARI {score:.3f}", flush=True)

    def work() -> None:
        wanted = named(options.networks, CONTENDERS, "network")
        if options.anew:
            keep_lines(options.out, ContenderRecord, lambda record: record.network not in wanted)
        known = {record.network for record in read_lines(options.out, ContenderRecord)}
        for name in (each for each in wanted if each not in known):
            # All of a network's lines or none, since one that the file has is not measured again.
            records: list[ContenderRecord] = []
            run(name, options.minutes, records.append)
            for record in records:
                report(record)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
