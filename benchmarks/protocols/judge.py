"""The judge of the default method on synthetic sets that it was not trained on: calibration, samples, ablations.

Sets are sampled from the synthetic prior with seeds that nothing is trained with.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from torch import Generator, Tensor, nn

from benchmarks.data.tables import load_reference_set, reference_set_names
from benchmarks.lines import REPOSITORY, Floats, Line, Settings, record, stamp
from benchmarks.protocols.zero_shot import Method, Worker, fit_set
from benchmarks.suite import Job, Suite
from coterie import DAC, ClAM, Coterie
from coterie.checkpoint import save_checkpoint
from coterie.config import to_dict
from coterie.errors import InputError
from coterie.judged.assign import Assigner
from coterie.judged.candidates.registry import Candidate, generate_candidates
from coterie.judged.features.measures import (
    ClusterMoments,
    centre_features,
    column_features,
    gap_features,
    mode_features,
    neighbourhood_features,
    normality_features,
    pair_features,
    shape_features,
    silhouette_features,
    size_features,
)
from coterie.judged.features.partitions import AGREEMENTS, Partitions
from coterie.judged.features.table import FEATURE_SETS, FEATURES, column_names, dataset_features, rank_columns
from coterie.judged.judge import Judge
from coterie.judged.network import NORMALISATION_CANDIDATES, JudgeModel
from coterie.judged.prior.task import SyntheticTask
from coterie.judged.prior.universal import SyntheticPrior
from coterie.judged.sample import SubsampleVote, VoteResult, disjoint_subsamples, subsample_indices
from coterie.judged.space import Geometry, Space
from coterie.judged.training import (
    MAX_CANDIDATES,
    ScoredSet,
    candidate_batches,
    read_scored_sets,
    train_on_scored_sets,
)
from coterie.metrics import adjusted_rand_index
from coterie.nn.model import build, to_arrays
from coterie.recipes import Recipe, read_recipe
from coterie.training.loop import train

STRIDE: Final = 1_000_003  # between the seeds of sets of different suites; no suite has that many sets


def _generator(suite: Suite, number: int) -> Generator:
    return Generator().manual_seed(suite["seed"] * STRIDE + number)


def _line(suite: Suite, number: int, method: str, settings: Settings, *, n: int = 0, d: int = 0) -> Line:
    return record(suite["suite"], f"universal/{number}", method, suite["seed"], settings, n=n, d=d)


def _agreement(task: SyntheticTask, labels: Any) -> float:
    """Adjusted Rand index with the truth, without outliers."""
    truth = task.labels.numpy()
    counted = truth >= 0
    return adjusted_rand_index(truth[counted], labels[counted])


def _agreement_of_all(task: SyntheticTask, sample: Any, chosen: Candidate) -> float:
    """Agreement of all rows after assigning them to the clusters of a sample."""
    return _agreement(task, Assigner.fit(sample, chosen).memberships(task.x.double().numpy()).argmax(axis=1))


def _true_k(task: SyntheticTask) -> int:
    return len(np.unique(task.labels[task.labels >= 0]))


def calibration(suite: Suite) -> Iterator[Job]:
    """Derive one job per set of a held-out kind: predicted and true agreement of the answer, at alternating effort."""
    for number in range(suite["sets"]):
        effort = "balanced" if number % 2 else "fast"
        settings = {"effort": effort, "judge": suite["judge"], "max_points": suite["max_points"], "split": "validation"}
        yield Job([_line(suite, number, f"coterie-{effort}", settings)], partial(_calibrate, suite, number))


def _calibrate(suite: Suite, number: int, pending: Sequence[Line]) -> Iterator[Line]:
    (blank,) = pending
    settings = blank["settings"]
    prior = SyntheticPrior(max_points=settings["max_points"], split=settings["split"])
    task = prior.sample_task(_generator(suite, number))
    began = time.process_time()
    model = Coterie(effort=settings["effort"], weights=settings["judge"], random_state=number).fit(task.to_table())
    seconds = time.process_time() - began
    metrics = {
        "kind": task.kind,
        "confidence": round(model.confidence_, 6),
        "ari": round(_agreement(task, model.labels_), 6),
        "n_clusters": model.n_clusters_,
        "single": int(model.n_clusters_ == 1),
    }
    n, d = task.x.shape
    yield blank | {"n": n, "d": d, "k": _true_k(task), "metrics": metrics, "seconds": round(seconds, 4)}


def sample_size(suite: Suite) -> Iterator[Job]:
    """Derive one job per set and sample size: agreement of all rows."""
    for number in range(suite["sets"]):
        for rows in suite["rows"]:
            settings = {"effort": suite["effort"], "judge": suite["judge"], "rows": rows, "rounds": 0}
            lines = [_line(suite, number, f"{rows} rows", settings, n=suite["points"])]
            yield Job(lines, partial(_measure_sample_size, suite, number, rows))


def _measure_sample_size(suite: Suite, number: int, rows: int, pending: Sequence[Line]) -> Iterator[Line]:
    points = suite["points"]
    task = SyntheticPrior(min_points=points, max_points=points).sample_task(_generator(suite, number))
    x = task.x.double().numpy()
    sample = x[subsample_indices(len(x), rows, number)]
    began = time.process_time()
    candidates = generate_candidates(sample, effort=suite["effort"], max_clusters=suite["max_clusters"], seed=number)
    scored = Judge.load(suite["judge"]).score(sample, candidates)
    seconds = time.process_time() - began
    chosen = scored.candidates[scored.choose()]
    metrics = {"ari": round(_agreement_of_all(task, sample, chosen), 6), "n_clusters": chosen.n_clusters}
    found = {"k": _true_k(task), "d": x.shape[1], "metrics": metrics, "seconds": round(seconds, 3)}
    yield pending[0] | found


def votes(suite: Suite) -> Iterator[Job]:
    """Derive one job per large set: the choice of the first subsample alone, and that of a vote of all."""
    for number in range(suite["sets"]):
        settings = {"effort": suite["effort"], "judge": suite["judge"], "rows": suite["rows"]}
        names = {1: "one sample", suite["voters"]: f"{suite['voters']} samples"}
        lines = [
            _line(suite, number, name, settings | {"voters": voters}, n=suite["points"])
            for voters, name in names.items()
        ]
        yield Job(lines, partial(_measure_votes, suite, number))


def _measure_votes(suite: Suite, number: int, pending: Sequence[Line]) -> Iterator[Line]:
    points = suite["points"]
    task = SyntheticPrior(min_points=points, max_points=points).sample_task(_generator(suite, number))
    x = task.x.double().numpy()
    vote = SubsampleVote(Judge.load(suite["judge"]), suite["effort"], None, suite["max_clusters"], 0.0, seed=number)
    samples, seconds = [], []
    for kept in disjoint_subsamples(len(x), suite["rows"], suite["voters"], number):
        began = time.process_time()
        scored = vote.score(Space(x[kept]))
        seconds.append(time.process_time() - began)
        if scored is not None:
            samples.append(scored)
    alone = [vote.vote([scored]) for scored in samples]
    began = time.process_time()
    together = vote.vote(samples)
    voting = time.process_time() - began
    agreements = [_agreement_of_result(task, each) for each in alone]
    for blank in pending:
        single = blank["settings"]["voters"] == 1
        result, spent = (alone[0], seconds[0]) if single else (together, sum(seconds) + voting)
        metrics = {
            "ari": round(_agreement_of_result(task, result), 6),
            "n_clusters": _chosen(result).n_clusters,
            "confidence": round(result.confidence, 6),
            "changed": int(result.space is not alone[0].space),
            "least_agreement": round(float(result.agreement.min()), 6),
            "mean_alone": round(float(np.mean(agreements)), 6),
            "best_alone": round(max(agreements), 6),
        }
        yield blank | {"k": _true_k(task), "d": x.shape[1], "metrics": metrics, "seconds": round(spent, 3)}


def _chosen(result: VoteResult) -> Candidate:
    if result.scored is None:
        raise AssertionError("Sets of the synthetic prior have clusters, so that there are candidates.")
    return result.scored.candidates[result.scored.choose()]


def _agreement_of_result(task: SyntheticTask, result: VoteResult) -> float:
    return _agreement_of_all(task, result.space.x, _chosen(result))


def more_generators(suite: Suite) -> Iterator[Job]:
    """Derive one job per set of two columns: the best candidate, and what DAC and ClAM (given k) would add."""
    for number in range(suite["sets"]):
        line = _line(suite, number, suite["method"], {"max_points": suite["max_points"]}, d=2)
        yield Job([line], partial(_measure_generators, suite, number))


def _measure_generators(suite: Suite, number: int, pending: Sequence[Line]) -> Iterator[Line]:
    generator, prior = _generator(suite, number), SyntheticPrior(max_points=suite["max_points"], max_features=2)
    task = prior.sample_task(generator)
    while task.x.shape[1] != 2:
        task = prior.sample_task(generator)
    x, k = task.x.double().numpy(), int(task.labels.max()) + 1
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    began = time.process_time()
    candidates = generate_candidates(x, effort="balanced", seed=number)
    seconds = time.process_time() - began
    metrics = {"best": max(_agreement(task, each.labels) for each in candidates)}
    spent = {}
    for name, model in {"dac": DAC(random_state=0), "clam": ClAM(k, random_state=0)}.items():
        began = time.process_time()
        metrics[name] = _agreement(task, np.asarray(model.fit(scaled).labels_))
        spent[f"{name}_seconds"] = time.process_time() - began
    rounded = {name: round(value, 6) for name, value in {**metrics, **spent}.items()}
    yield pending[0] | {"metrics": rounded, "seconds": round(seconds, 4), "n": len(x), "k": k}


# Ablations: how much the judge was trained on, what it sees, what it is, and which algorithms generate candidates.

Chooser: TypeAlias = Callable[[ScoredSet], int]  # index of the candidate that is chosen
TREES: Final = 300
BINS: Final = 255
RULES: Final = ("silhouette", "log_calinski_harabasz", "normal_bic", "agreement_mean")
"""Columns by whose largest value a candidate can be chosen."""


def _feature_groups() -> dict[str, tuple[int, ...]]:
    """Return the indices of columns by what computes them, ranks included; names are those of results files."""
    x = np.random.default_rng(0).normal(size=(40, 3))
    geometry, parts = Geometry(x), Partitions.from_labels(np.arange(40)[None] % 2)
    moments = ClusterMoments.compute(geometry, parts)
    names: dict[str, Iterable[str]] = {
        "the rows as a whole": dataset_features(geometry),
        "sizes": size_features(parts),
        "neighbourhoods": neighbourhood_features(geometry, parts),
        "gaps and modes": {**gap_features(geometry, parts), **mode_features(geometry, parts)},
        "separation": {**silhouette_features(geometry, parts), **centre_features(geometry, parts)},
        "normal clouds": normality_features(geometry, parts, moments),
        "insides of clusters": shape_features(parts, moments),
        "pairs of clusters": pair_features(geometry, parts, moments),
        "columns": column_features(geometry, parts),
    }
    columns = column_names()
    groups = {group: [*inside, *(f"rank of {name}" for name in inside)] for group, inside in names.items()}
    others = {
        "ranks": [name for name in columns if name.startswith("rank of ")],
        "agreement with other proposals": list(AGREEMENTS),
        "steps to fewer and more clusters": list(FEATURE_SETS["euclidean"].steps),
        "who proposed": _sources(),
    }
    index = {name: number for number, name in enumerate(columns)}
    return {
        group: tuple(index[name] for name in inside if name in index) for group, inside in (others | groups).items()
    }


def _sources() -> list[str]:
    """Columns that tell which algorithm generated a candidate, and on which view."""
    return [name for name in column_names() if name.startswith(("by ", "on "))]


@dataclass(frozen=True)
class Outcome:
    """For each set: agreement of the choice, the best agreement, and the error in the number of clusters."""

    ari: Sequence[float]
    best: Sequence[float]
    k_error: Sequence[float]

    def summary(self) -> dict[str, float]:
        """Means and standard errors."""
        found = {"sets": float(len(self.ari))}
        for name, values in asdict(self).items():
            found[name] = round(float(np.mean(values)), 5)
            found[f"{name}_se"] = round(float(np.std(values) / np.sqrt(len(values))), 5)
        return found


@dataclass(frozen=True, eq=False)
class JudgeLab:
    """Trains judges on scored sets and measures what they choose for others."""

    training: Sequence[ScoredSet]
    testing: Sequence[ScoredSet]  # sets of more than one cluster
    recipe: Recipe
    steps: int

    @cached_property
    def judge(self) -> Chooser:
        """The judge with nothing left out."""
        return self.train()

    def train(self, sets: int | None = None, hidden: Sequence[int] = (), *, attention: bool = True) -> Chooser:
        """Train on the first sets; hidden columns are constant; without attention, each candidate is seen alone."""
        generator = Generator().manual_seed(self.recipe.seed)
        model = build(JudgeModel, self.recipe.model, generator)
        if not attention:
            for member in model.members:
                member.blocks = nn.ModuleList()
        training = self.training[:sets]
        model.fit_normalisation(torch.cat([one.columns for one in training]))
        constant = model.centre[list(hidden)]

        def mask(columns: Tensor) -> Tensor:
            if not hidden:
                return columns
            columns = columns.clone()
            columns[..., list(hidden)] = constant
            return columns

        size = MAX_CANDIDATES if self.recipe.candidates is None else self.recipe.candidates.max_candidates
        batches = candidate_batches(
            training, batch_size=self.recipe.batch_size, max_candidates=size, generator=generator
        )
        config = replace(self.recipe.train, steps=self.steps, keep_best=None, patience=None)
        masked = (replace(batch, columns=mask(batch.columns)) for batch in batches)
        train(model, masked, config, generator=generator)
        model.eval()

        @torch.no_grad()
        def choose(one: ScoredSet) -> int:
            return int(model(mask(one.columns).unsqueeze(0))[0].argmax())

        return choose

    def train_trees(self) -> Chooser:
        """Train boosted trees that predict the agreement of each candidate alone; every set has the same weight."""
        several = [one for one in self.training if one.n_true_clusters > 1]
        columns = torch.cat([one.columns for one in several]).numpy()
        # scikit-learn bins numbers itself, but takes very long for weighted rows.
        some = columns[:: max(1, len(columns) // NORMALISATION_CANDIDATES)]
        edges = np.quantile(some, np.linspace(0.0, 1.0, BINS + 1)[1:-1], axis=0).T

        def to_bins(columns: Floats) -> Floats:
            bins = [np.searchsorted(*both) for both in zip(edges, columns.T, strict=True)]
            return np.stack(bins, axis=1).astype(np.float32)

        model = HistGradientBoostingRegressor(
            max_iter=min(TREES, self.steps), early_stopping=False, random_state=self.recipe.seed
        )
        weights = np.concatenate([np.full(len(one.score), 1.0 / len(one.score)) for one in several])
        model.fit(to_bins(columns), torch.cat([one.score for one in several]).numpy(), sample_weight=weights)
        return lambda one: int(model.predict(to_bins(one.columns.numpy())).argmax())

    def measure(self, choose: Chooser, *, without: int | None = None) -> Outcome:
        """Measure choices, perhaps without the candidates of one source; without any, all rows are one cluster."""
        ari, best, k_error = [], [], []
        for one in self.testing:
            left = one if without is None else _without(one, without)
            if not len(left.score):
                ari.append(0.0)
                best.append(0.0)
                k_error.append(one.n_true_clusters - 1.0)
                continue
            index = choose(left)
            ari.append(float(left.score[index]))
            best.append(float(left.score.max()))
            k_error.append(float(abs(int(left.n_clusters[index]) - one.n_true_clusters)))
        return Outcome(ari, best, k_error)


def _without(one: ScoredSet, column: int) -> ScoredSet:
    """Remove the candidates that have a column, and rank the others anew."""
    kept = one.columns[:, column] == 0
    columns = one.columns[kept]
    if len(columns):
        width = len(FEATURES)
        columns[:, width : 2 * width] = torch.from_numpy(rank_columns(columns[:, :width].numpy()))
    return ScoredSet(columns, one.score[kept], one.n_clusters[kept], one.n_true_clusters)


@dataclass(frozen=True)
class Fold:
    """Sets that one judge clusters, and the kinds of scored sets that it must not be trained on."""

    name: int | str
    sets: Sequence[tuple[str, str]]  # group and name of each
    left_out: frozenset[str]


def out_of_fold(suite: Suite) -> Iterator[Job]:
    """Derive one job per fold of the labelled sets: a judge that was trained on none of them clusters them.

    Judges start from ``start``, weights that know none of the sets, or from random weights, and are trained on the
    scored sets of a run of the recipe without those made from sets of the fold. In ``start``, ``{fold}`` stands for the
    name of the fold, so that a recipe that goes on from another one can start from the judges of its folds.
    """
    recipe, scored = _read_run(suite)
    for fold in _folds_of_corpora(suite) if "corpora" in suite.spec else _folds_of_tables(suite):
        settings = {"given_k": False, "effort": suite["effort"], "judge": recipe.name, "fold": fold.name}
        lines = [
            record(suite["suite"], name, "coterie", seed, {"group": group, **settings})
            for group, name in fold.sets
            for seed in suite.get("seeds", [0])
        ]
        yield Job(lines, partial(_measure_fold, suite, recipe, scored, fold.left_out))


def _named_sets(suite: Suite) -> list[tuple[str, str]]:
    return [(group, name) for group in suite["groups"] for name in reference_set_names(group)]


def _folds_of_tables(suite: Suite) -> Iterator[Fold]:
    """Deal tables out to ``folds`` folds; those in the same list of ``related`` are in one fold."""
    names = _named_sets(suite)
    related = {name: min(group) for group in suite["related"] for name in group}
    firsts = sorted({related.get(name, name) for _, name in names})
    for fold in range(suite["folds"]):
        own = [each for each in names if firsts.index(related.get(each[1], each[1])) % suite["folds"] == fold]
        yield Fold(fold, own, frozenset(f"real/{name}" for _, name in own))


def _folds_of_corpora(suite: Suite) -> Iterator[Fold]:
    """Make a fold of each corpus, from how the names of its sets begin and the kinds of its scored sets."""
    names = _named_sets(suite)
    for fold, corpus in suite["corpora"].items():
        own = [each for each in names if each[1].startswith(tuple(corpus["data"]))]
        yield Fold(fold, own, frozenset([*corpus["kinds"], *suite["left_out"]]))


def _measure_fold(
    suite: Suite, recipe: Recipe, sets: Sequence[ScoredSet], left_out: frozenset[str], pending: Sequence[Line]
) -> Iterator[Line]:
    fold, start = pending[0]["settings"]["fold"], suite.get("start")
    folder = suite.run_folder / f"fold-{fold}"
    path = folder / "judge.safetensors"
    if not path.exists():
        kept = [one for one in sets if one.kind not in left_out]
        held_out = min(suite["held_out"], len(kept) // 2)
        model, card = train_on_scored_sets(
            recipe.model,
            kept[:-held_out],
            kept[-held_out:],
            replace(recipe.train, steps=suite["steps"], learning_rate=suite["learning_rate"]),
            batch_size=recipe.batch_size,
            seed=recipe.seed,
            folder=folder,
            metric=getattr(recipe.tasks, "metric", "euclidean"),
            start=None if start is None else start.format(fold=fold),
        )
        card |= {"method": "judge", "model": to_dict(model.config)}
        save_checkpoint(path, to_arrays(model.state_dict()), card, force=True)
    # Directions, if they are tried too, are judged by the shipped judge of embeddings, which has seen no table.
    settings = {"effort": suite["effort"], "judge": {getattr(recipe.tasks, "metric", "euclidean"): str(path)}}
    method = Method("coterie", "coterie", settings=settings, package="coterie", scales_columns=True)
    worker = Worker(method)
    try:
        for blank in pending:
            one = load_reference_set(blank["settings"]["group"], blank["data"])
            yield fit_set(blank, one, method, worker.ask)
    finally:
        worker.stop()


def _read_run(suite: Suite) -> tuple[Recipe, list[ScoredSet]]:
    """Read a recipe of a judge, and the scored sets of a run of it; those of several recipes are mixed."""
    recipe = read_recipe(REPOSITORY / "recipes" / suite["recipe"])
    folder = suite.run_folder / "judged"
    files = sorted((folder if folder.is_dir() else suite.run_folder).glob("judged-*.safetensors"))
    files += sorted(suite.run_folder.glob("judged-[0-9]*/judged-*.safetensors"))
    sets = [scored for path in files for scored in read_scored_sets(path)]
    if recipe.more:
        sets = [sets[index] for index in np.random.default_rng(recipe.seed).permutation(len(sets))]
    return recipe, sets[: suite.get("first_sets")]


def ablations(suite: Suite) -> Iterator[Job]:
    """Derive one job per variant of the judge, from the scored sets of a run of its recipe.

    The last sets are for measuring, those before for training. Where an algorithm is left out, all candidates that it
    was the first to generate are, even if another one generated the same; agreements with other candidates stay.
    """
    recipe, sets = _read_run(suite)
    held_out = suite.get("held_out") or (recipe.candidates.held_out if recipe.candidates else 0)
    several = [one for one in sets[-held_out:] if one.n_true_clusters > 1]
    if not 0 < held_out < len(sets) or not several:
        raise InputError(
            f"{str(suite.run_folder)!r} has {len(sets)} scored sets, of which {held_out} are to be held out. Name the "
            f"folder of a run of {suite['recipe']} by --runs."
        )
    lab = JudgeLab(sets[:-held_out], several, recipe, suite["steps"])
    for part, variant, training_sets, measure in _variants(lab, suite["sizes"]):
        line = {"part": part, "variant": variant, "training_sets": training_sets, "available": len(lab.training)}
        line |= {"held_out": held_out, "steps": lab.steps, "seed": recipe.seed}
        yield Job([line], partial(_measure_variant, measure))


def _measure_variant(measure: Callable[[], Outcome], pending: Sequence[Line]) -> Iterator[Line]:
    began = time.process_time()
    found = measure()
    seconds = round(time.process_time() - began, 1)
    scores = [round(score, 4) for score in found.ari]
    yield {**pending[0], "metrics": found.summary(), "scores": scores, "seconds": seconds, **stamp()}


def _variants(lab: JudgeLab, sizes: Sequence[int]) -> Iterator[tuple[str, str, int, Callable[[], Outcome]]]:
    every, columns = len(lab.training), column_names()

    def retrained(**options: Any) -> Callable[[], Outcome]:
        return lambda: lab.measure(lab.train(**options))

    yield "whole", "the judge", every, lambda: lab.measure(lab.judge)
    for size in (size for size in sizes if size < every):
        yield "sets", f"{size:,}", size, retrained(sets=size)
    for name, hidden in _feature_groups().items():
        yield "evidence", name, every, retrained(hidden=hidden)
    yield "kind", "the judge, proposals apart", every, retrained(attention=False)
    yield "kind", "trees", every, lambda: lab.measure(lab.train_trees())
    for name in RULES:
        yield "rule", name, 0, partial(lab.measure, partial(_largest, columns.index(name)))
    for name in _sources():
        yield "proposers", name, every, partial(_measure_without, lab, columns.index(name))


def _largest(column: int, one: ScoredSet) -> int:
    return int(one.columns[:, column].argmax())


def _measure_without(lab: JudgeLab, column: int) -> Outcome:
    return lab.measure(lab.judge, without=column)
