"""How much the clusters of embeddings change if the rows change a little: less precision, or fewer rows.

Two fits with the same seed are compared by the adjusted Rand index of their labels, where noise is one cluster. Rows
are scaled to length one first: some files hold half precision, which could not be rounded to it otherwise.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
from sklearn.preprocessing import normalize

from benchmarks.data.tables import NOISE, load_reference_set, reference_set_names
from benchmarks.lines import Floats, Labels, Line, library_versions, record
from benchmarks.protocols.zero_shot import Answer, GivenK, Method, Worker, methods_of
from benchmarks.suite import Job, Suite
from coterie.metrics import adjusted_rand_index

SUBSAMPLES: Final = 2  # that are compared


def embeddings(suite: Suite) -> Iterator[Job]:
    """Derive one job per method, over all sets and seeds."""
    sets = [(group, name) for group in suite["groups"] for name in reference_set_names(group)]
    for method in methods_of(suite.methods):
        settings = {"given_k": method.given_k, "fraction": suite["fraction"], **method.settings}
        lines = [
            record(suite["suite"], name, method.name, seed, {"group": group, **settings})
            for group, name in sets
            if name.startswith(tuple(suite["data"]))
            for seed in method.seeds
        ]
        yield Job(lines, partial(_measure, method))


def _measure(method: Method, pending: Sequence[Line]) -> Iterator[Line]:
    method.require_package()
    worker = Worker(method)
    try:
        for blank in pending:
            yield _compare(blank, method, worker)
    finally:
        worker.stop()


def _compare(blank: Line, method: Method, worker: Worker) -> Line:
    """Cluster the rows, the rounded rows and two subsamples, and compare the answers."""
    one = load_reference_set(blank["settings"]["group"], blank["data"])
    X: Floats = normalize(one.scaled)
    (n, d), (k,) = X.shape, one.ks
    blank = blank | {"n": n, "d": d, "k": k, "versions": library_versions() | method.packages}
    given: list[GivenK] = [(k,) if method.given_k else ()]
    subsamples = take_subsamples(n, blank["settings"]["fraction"], blank["seed"])
    rounded = X.astype(np.float16).astype(np.float32)
    answers: list[Answer] = []
    for rows in (X, rounded, *(X[kept] for kept in subsamples)):
        answers.append(worker.ask(rows, blank["seed"], given))
        if answers[-1].failure:
            return blank | {"note": answers[-1].failure}
    whole, less_precise, *parts = [answer.partitions[0] for answer in answers]
    counts = [len(np.unique(labels[labels != NOISE])) for labels in (whole, less_precise, *parts)]
    metrics = {
        "ari_rounded": round(adjusted_rand_index(whole, less_precise), 6),
        "ari_subsamples": round(agreement_of_shared(subsamples, parts), 6),
        "ari": round(one.agreement([whole]).ari, 6),
        "n_clusters": counts[0],
        "n_clusters_rounded": counts[1],
        "n_clusters_subsamples": counts[2:],
    }
    return blank | {"metrics": metrics, "seconds": round(answers[0].seconds, 4)}


def take_subsamples(n: int, fraction: float, seed: int) -> list[Labels]:
    """Take random subsamples of the indices of n rows, each ascending."""
    rng = np.random.default_rng(seed)
    return [np.sort(rng.choice(n, round(fraction * n), replace=False)) for _ in range(SUBSAMPLES)]


def agreement_of_shared(subsamples: Sequence[Labels], labels: Sequence[Labels]) -> float:
    """Compare the labels of two subsamples on the rows that both have."""
    _, first, second = np.intersect1d(subsamples[0], subsamples[1], assume_unique=True, return_indices=True)
    return adjusted_rand_index(labels[0][first], labels[1][second])
