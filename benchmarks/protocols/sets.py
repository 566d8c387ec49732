"""Methods on batches of synthetic sets, with densities: DAC's Tables 1, 5 and 6, and AMCP on the same sets."""

import time
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

import torch

from benchmarks.data.synthetic import SETS_PER_BATCH, SetSampler, SyntheticSet
from benchmarks.lines import Line, stamp
from benchmarks.methods.sets import SOLVERS, Solve
from benchmarks.suite import Job, Spec, Suite
from coterie.metrics import adjusted_rand_index, normalized_mutual_information


def batches(suite: Suite) -> Iterator[Job]:
    """Derive one job per table, kind of sets and method; each line is about one batch of sets."""
    for table in suite["tables"]:
        for sets in table["sets"]:
            sampler = SetSampler(**sets)
            for key in table["methods"]:
                spec = suite.methods[key]
                # Slow methods take only the first batches.
                limit = spec.get("batches", sampler.batches)
                limit = limit.get(sampler.name, sampler.batches) if isinstance(limit, dict) else limit
                settings = _settings(spec, sampler.max_clusters)
                lines = [
                    {
                        "suite": suite["suite"],
                        "table": table["number"],
                        "sets": sampler.name,
                        "sets_seed": sampler.seed,
                        "batch": index,
                        "n_points": 0,
                        "method": spec.get("name", key),
                        "settings": settings,
                        "metrics": {},
                        "seconds": [],
                        **stamp(),
                    }
                    for index in range(min(sampler.batches, limit))
                ]
                prepare = cache(partial(SOLVERS[spec["solver"]], sampler.max_clusters, **settings))
                yield Job(lines, partial(_measure, sampler, prepare, suite["timed_sets"]))


def _settings(spec: Spec, max_clusters: int) -> dict[str, Any]:
    """Return the recorded settings; some methods get twice the components that there can be."""
    settings = dict(spec.get("settings", {}))
    if "components_field" in spec:
        settings[spec["components_field"]] = 2 * max_clusters
    return settings


def _measure(sampler: SetSampler, prepare: Any, timed_sets: int, pending: Sequence[Line]) -> Iterator[Line]:
    wanted = {line["batch"]: line for line in pending}
    solve = prepare()
    for index, sets in enumerate(sampler.sample()):
        if index > max(wanted):
            break
        if index in wanted:
            if index == 0:
                solve(sets[0])  # the first call may be slower
            metrics, seconds = score_solver(sets, solve)
            timed = max(0, timed_sets - index * SETS_PER_BATCH)
            kept = [spent if position < timed else None for position, spent in enumerate(seconds)]
            yield wanted[index] | {"n_points": len(sets[0].x), "metrics": metrics, "seconds": kept}


def score_solver(sets: Sequence[SyntheticSet], solve: Solve) -> tuple[dict[str, list[Any]], list[float]]:
    """Return the metrics of each set, and the processor seconds."""
    metrics: dict[str, list[Any]] = {name: [] for name in ("ll", "ari", "nmi", "k_true", "k_found")}
    seconds: list[float] = []
    for one in sets:
        # Processor seconds, since the machine may be busy with other work.
        began = time.process_time()
        answer = solve(one)
        seconds.append(round(time.process_time() - began, 5))
        likelihood = None if answer.log_likelihood is None else round(float(answer.log_likelihood()), 5)
        truth, labels = one.y.numpy(), answer.labels.numpy()
        metrics["ll"].append(likelihood)
        metrics["ari"].append(round(adjusted_rand_index(truth, labels), 5))
        metrics["nmi"].append(round(normalized_mutual_information(truth, labels), 5))
        metrics["k_true"].append(one.n_clusters)
        metrics["k_found"].append(len(torch.unique(answer.labels)))
    return metrics, seconds
