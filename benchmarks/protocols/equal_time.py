"""Networks for synthetic sets, each trained for the same processor time on one thread.

The number of steps that fit into the time is measured first, so that the learning rate can fall to zero at its end.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import mean
from typing import Any

import torch
from torch import Generator

from benchmarks.baselines.ncp import NcpModel
from benchmarks.baselines.set_transformer import ActStModel
from benchmarks.data.synthetic import KINDS, SetSampler, SyntheticSet
from benchmarks.lines import Line, stamp
from benchmarks.methods.sets import NO_LIMIT, Answer, Solve, solve_by_act_st, solve_by_filtering
from benchmarks.protocols.sets import score_solver
from benchmarks.suite import Job, Spec, Suite
from benchmarks.training import SEED, Network, n_parameters, steps_within, train_network, with_config
from coterie.amortized.amcp.network import AmcpModel
from coterie.amortized.filtering import FilteringModel
from coterie.metrics import adjusted_rand_index
from coterie.nn.model import SetModel
from coterie.progress import Progress


@dataclass(frozen=True)
class Trained:
    """A network after its time."""

    model: Any
    network: Network
    steps: int
    loss: float  # mean of the last twentieth of the steps
    course: list[tuple[int, float]]  # steps, and the mean ARI then; empty if the suite does not ask for it


def train_for(
    name: str, suite: Suite, spec: Spec, evaluate: Callable[[Any], dict[str, float]] | None = None, evaluations: int = 1
) -> Trained:
    """Train a network of a suite for the minutes of that suite."""
    network = Network.of(suite["training"] | spec, n_features=2)
    sets = suite["training"]["sets"]
    tasks = KINDS[spec.get("sets", "mog")](**sets)
    steps = steps_within(suite["minutes"], network, tasks)
    losses: list[float] = []
    course: list[tuple[int, float]] = []

    def note(progress: Progress) -> None:
        losses.append(progress.loss or 0.0)
        if progress.evaluation is not None:
            course.append((progress.step, round(progress.evaluation["ari"], 4)))

    every = max(1, steps // evaluations) if evaluate is not None else 0
    timed = replace(network, training=replace(network.training, steps=steps, evaluate_every=every))
    model = train_network(name, timed, tasks, callback=note, evaluate=evaluate)
    tail = losses[-max(1, steps // 20) :]
    return Trained(model, network, steps, round(mean(tail), 4), course)


def published_and_ours(suite: Suite) -> Iterator[Job]:
    """Derive one job per network: DAC as published and ours, decoded as published, which hides nothing."""
    for name, spec in suite.methods.items():
        line = {"network": name, "minutes": suite["minutes"]}
        yield Job([line], partial(_measure_one_line, suite, spec))


def _measure_one_line(suite: Suite, spec: Spec, pending: Sequence[Line]) -> Iterator[Line]:
    (blank,) = pending
    found = train_for(blank["network"], suite, spec)
    samplers = [SetSampler(**sets) for sets in suite["sets"]]
    kinds = {sampler.name: sampler.sets() for sampler in samplers}
    decoder = with_config(found.model, decoding="faithful", max_points=NO_LIMIT)
    yield {
        "network": blank["network"],
        "parameters": n_parameters(found.model),
        "minutes": blank["minutes"],
        "steps": found.steps,
        "loss": found.loss,
        "metrics": {kind: _mean_scores(decoder, sets) for kind, sets in kinds.items()},
        "n_sets": len(next(iter(kinds.values()))),
        "seed": SEED,
        **stamp(),
    }


def _mean_scores(model: SetModel, sets: Sequence[SyntheticSet]) -> dict[str, float]:
    scores, errors = [], []
    began = time.process_time()
    for one in sets:
        labels = model.cluster(one.x, Generator().manual_seed(SEED)).labels
        scores.append(adjusted_rand_index(one.y.numpy(), labels.numpy()))
        errors.append(abs(len(torch.unique(labels)) - one.n_clusters))
    seconds = time.process_time() - began
    numbers = {"ari": sum(scores), "k_error": sum(errors), "seconds": seconds}
    return {name: round(value / len(sets), 4) for name, value in numbers.items()}


def variants(suite: Suite) -> Iterator[Job]:
    """Derive one job per network: variants of AMCP, DAC, ACT-ST and NCP, decoded in several ways.

    Clusters are left as the passes made them ("faithful"), may change after each pass ("star"), or are refined at the
    end ("robust").
    """
    for name, spec in suite.methods.items():
        yield Job([{"network": name, "scenario": spec.get("sets", "mog")}], partial(_measure_variant, suite, spec))


def _measure_variant(suite: Suite, spec: Spec, pending: Sequence[Line]) -> list[Line]:
    """Return all lines of a network at once, since a network with some lines is not measured again."""
    (blank,) = pending
    watched = SetSampler(**suite["watched"]["sets"]).sets() if spec.get("watched") else []
    evaluate = (lambda model: _mean_ari(model, watched)) if watched else None
    found = train_for(blank["network"], suite, spec, evaluate, suite["watched"]["evaluations"])
    lines = []
    samplers = [SetSampler(blank["scenario"], **sets) for sets in suite["sets"]]
    for sampler in samplers:
        sets = sampler.sets()
        if isinstance(found.model, NcpModel) and sampler is samplers[-1]:
            sets = sets[: suite["pointwise_sets"]]  # NCP assigns one point after the other
        for decoding, solve in _decodings(found.model).items():
            solve(sets[0])  # the first call may be slower
            metrics, seconds = score_solver(sets, solve)
            settings: Spec = {key: json.dumps(value) for key, value in asdict(found.network.config).items()}
            settings |= {
                "parameters": n_parameters(found.model),
                "learning_rate": found.network.training.learning_rate,
            }
            line = {"settings": settings, "minutes": suite["minutes"], "steps": found.steps, "loss": found.loss}
            line |= {"course": found.course, "sets": sampler.name, "sets_seed": sampler.seed, "decoding": decoding}
            lines.append({**blank, **line, "metrics": metrics, "seconds": seconds, **stamp()})
    return lines


def _decodings(model: SetModel) -> dict[str, Solve]:
    """Return the ways in which a network finds clusters."""
    if isinstance(model, ActStModel):
        return {"as it comes": solve_by_act_st(model)}
    if not isinstance(model, FilteringModel):
        return {"as it comes": lambda one: Answer(model.cluster(one.x, Generator().manual_seed(SEED)).labels)}
    ways: dict[str, dict[str, Any]] = {"faithful": {"decoding": "faithful", "max_points": NO_LIMIT}}
    if isinstance(model, AmcpModel):
        ways["star"] = ways["faithful"] | {"update_previous": True}
    if model.config.decoding == "robust":
        ways["robust"] = {}
    return {name: solve_by_filtering(with_config(model, **changes)) for name, changes in ways.items()}


def _mean_ari(model: SetModel, sets: Sequence[SyntheticSet]) -> dict[str, float]:
    """Evaluate a network while it is trained."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        found = [model.cluster(one.x, Generator().manual_seed(SEED)).labels for one in sets]
    model.train(was_training)
    pairs = zip(sets, found, strict=True)
    return {"ari": mean(adjusted_rand_index(one.y.numpy(), labels.numpy()) for one, labels in pairs)}
