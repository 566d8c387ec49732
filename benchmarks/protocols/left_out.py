"""Judges of embeddings on kinds of sets that they were not trained on: shipped judges, new ones, and simple rules.

Sets are scored once, and kept in the folder of the run.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch import Generator

from benchmarks.lines import REPOSITORY, Line, stamp
from benchmarks.suite import Job, Suite
from coterie.config import from_dict
from coterie.judged.features.table import column_names
from coterie.judged.judge import Judge
from coterie.judged.network import JudgeModel
from coterie.judged.prior.embeddings import EmbeddingPrior
from coterie.judged.training import NUMBER_COST, ScoredSet, ScoredSetsConfig, make_scored_sets, train_on_scored_sets
from coterie.nn.model import build, to_tensors
from coterie.recipes import read_recipe

Scores: TypeAlias = Callable[[ScoredSet], torch.Tensor]  # one number for each candidate: the largest is chosen
WITHIN: Final = 1.5  # factor
_LEAST: Final = 0.1  # adjusted Rand index that a candidate of a set must reach for the set to count


def variants(suite: Suite) -> Iterator[Job]:
    """Derive one job per variant: its choices for the sets of each pool that is for testing."""
    for name, variant in suite["variants"].items():
        lines = [
            {"part": part, "variant": name, "seed": suite["seed"], "settings": variant} for part in suite["testing"]
        ]
        yield Job(lines, partial(_measure, suite, name, variant))


def _measure(suite: Suite, name: str, variant: dict[str, Any], pending: Sequence[Line]) -> Iterator[Line]:
    began = time.process_time()
    score = _scores(suite, name, variant)
    trained = round(time.process_time() - began, 1)
    for line in pending:
        sets = [one for one in _read_pool(suite, line["part"]) if _counts(one)]
        chosen = [int(score(one).argmax()) for one in sets]
        yield {**line, "metrics": _summary(sets, chosen), **_details(sets, chosen), "seconds": trained, **stamp()}


def _counts(one: ScoredSet) -> bool:
    return one.n_true_clusters > 1 and float(one.score.max()) >= _LEAST


def _read_pool(suite: Suite, name: str) -> list[ScoredSet]:
    """Read the scored sets of a pool; those that the folder lacks are made."""
    settings = dict(suite["pools"][name])
    config = ScoredSetsConfig(settings.pop("sets") - suite["held_out"], suite["held_out"], settings.pop("balanced"))
    seed = settings.pop("seed")
    settings["corpora"] = tuple(settings["corpora"])
    prior = from_dict(EmbeddingPrior, settings)
    return make_scored_sets(prior, config, seed, suite.run_folder / name)


def _scores(suite: Suite, name: str, variant: dict[str, Any]) -> Scores:
    if "rule" in variant:
        index = column_names("cosine").index(variant["rule"])
        return lambda one: one.columns[:, index]
    if "best" in variant:
        return lambda one: one.score
    if "true_k" in variant:
        return _nearness
    judge = _trained(suite, name, variant) if "training" in variant else _shipped(variant["judge"])
    return partial(_logits, judge, variant.get("smooth", 0.0), variant.get("number_cost", NUMBER_COST))


def _nearness(one: ScoredSet) -> torch.Tensor:
    """Return how near the numbers of clusters are to that of classes."""
    doublings: torch.Tensor = (one.n_clusters / one.n_true_clusters).log2().abs()
    return -doublings


@torch.no_grad()
def _logits(judge: JudgeModel, width: float, number_cost: float, one: ScoredSet) -> torch.Tensor:
    """Return the judge's logits less the cost of numbers of clusters, perhaps smoothed over similar numbers."""
    doublings = one.n_clusters.log2()
    logits: torch.Tensor = judge(one.columns.unsqueeze(0))[0].squeeze(0) - number_cost * doublings
    if not width:
        return logits
    weights = (-0.5 * ((doublings.unsqueeze(1) - doublings) / width).square()).exp()
    return (logits + weights @ logits / weights.sum(dim=1)) / 2


def _shipped(name: str) -> JudgeModel:
    network = Judge.load(name).network
    model = build(JudgeModel, network.config, Generator())
    model.load_state_dict(to_tensors(dict(network.weights)))
    return model.eval()


def _trained(suite: Suite, name: str, variant: dict[str, Any]) -> JudgeModel:
    recipe = read_recipe(REPOSITORY / "recipes" / suite["recipe"])
    pools = [_read_pool(suite, each) for each in variant["training"]]
    training = [one for pool in pools for one in pool[: -suite["held_out"]]]
    model, _ = train_on_scored_sets(
        replace(recipe.model, **variant.get("model", {})),
        _thin(training, variant.get("thinned")),
        [one for pool in pools for one in pool[-suite["held_out"] :]],
        replace(recipe.train, steps=variant["steps"], learning_rate=variant["learning_rate"], evaluate_every=500),
        batch_size=recipe.batch_size,
        seed=suite["seed"],
        folder=suite.run_folder / "judges" / name.replace(" ", "-"),
        metric="cosine",
        start=variant.get("start"),
    )
    return model.eval()


def _thin(sets: list[ScoredSet], what: str | None) -> list[ScoredSet]:
    """Keep all sets, every other one, or those of every other corpus; the two embeddings of a corpus are one."""
    if what is None:
        return sets
    corpora = sorted({_corpus(one) for one in sets})
    return sets[::2] if what == "sets" else [one for one in sets if _corpus(one) in corpora[::2]]


def _corpus(one: ScoredSet) -> str:
    return one.kind.removesuffix("_minilm").removesuffix("_wordllama")


def _summary(sets: Sequence[ScoredSet], chosen: Sequence[int]) -> dict[str, float]:
    ari = np.array([float(one.score[index]) for one, index in zip(sets, chosen, strict=True)])
    ratio = np.array(
        [int(one.n_clusters[index]) / one.n_true_clusters for one, index in zip(sets, chosen, strict=True)]
    )
    within = (ratio <= WITHIN) & (ratio >= 1 / WITHIN)
    found = {"sets": len(sets), "ari": ari.mean(), "ari_se": ari.std() / len(ari) ** 0.5, "within": within.mean()}
    return {key: round(float(value), 4) for key, value in (found | {"doublings": np.log2(ratio).mean()}).items()}


def _details(sets: Sequence[ScoredSet], chosen: Sequence[int]) -> dict[str, list[Any]]:
    pairs = list(zip(sets, chosen, strict=True))
    return {
        "scores": [round(float(one.score[index]), 4) for one, index in pairs],
        "n_clusters": [int(one.n_clusters[index]) for one, index in pairs],
        "k": [one.n_true_clusters for one in sets],
    }
