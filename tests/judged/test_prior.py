"""The synthetic prior: every set is valid, every kind occurs, and labels are as recoverable as sampled."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.judged.prior import sampling
from coterie.judged.prior.geometric import CENTRE_LAYOUTS, LAYOUT_WEIGHTS
from coterie.judged.prior.shapes import CURVES, FLATS, SOLIDS, thick_curve
from coterie.judged.prior.tables import KINDS, STYLES, TABLE_KINDS, sample_columns
from coterie.judged.prior.task import SyntheticTask
from coterie.judged.prior.universal import FULL_SIZE, SyntheticPrior
from coterie.nn.model import TaskSampler
from coterie.recipes import TASKS

SHAPES_AND_TABLES = {"geometric": 0.5, "table": 0.5}
SMALL = SyntheticPrior(min_points=50, max_points=250, weights=SHAPES_AND_TABLES, decorated=0.0)
N_TASKS = 500


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def tasks() -> list[SyntheticTask]:
    generator = seeded()
    return [SMALL.sample_task(generator) for _ in range(N_TASKS)]


def number(task: SyntheticTask, key: str) -> float:
    return float(task.description[key])


def words(tasks: list[SyntheticTask], key: str) -> Iterator[str]:
    for task in tasks:
        if key in task.description:
            yield from str(task.description[key]).split(", ")


def test_every_task_is_valid(tasks: list[SyntheticTask]) -> None:
    for task in tasks:
        assert (task.x.dtype, task.labels.dtype) == (torch.float32, torch.int64)
        assert 50 <= len(task.x) == len(task.labels) <= 250
        assert 1 <= task.x.shape[1] <= 64
        assert task.x.isfinite().all()
        sizes = torch.bincount(task.labels[task.labels >= 0])
        assert 2 <= len(sizes) <= 50
        assert int(sizes.min()) >= sampling.MIN_CLUSTER_SIZE
        assert int(task.labels.min()) >= -1
        assert float((task.labels < 0).float().mean()) == pytest.approx(number(task, "outliers"))


def test_sizes_vary(tasks: list[SyntheticTask]) -> None:
    points = torch.tensor([len(task.x) for task in tasks]).double()
    smaller = points[points < 250]
    assert len(smaller) / N_TASKS == pytest.approx(1 - FULL_SIZE, abs=0.04)
    assert float(smaller.log().mean()) == pytest.approx((math.log(50) + math.log(250)) / 2, abs=0.08)
    clusters = Counter(int(task.labels.max()) + 1 for task in tasks)
    assert set(range(2, 11)) <= set(clusters)
    assert max(clusters) >= 20
    assert 0.15 < clusters[2] / N_TASKS < 0.45
    features = Counter(task.x.shape[1] for task in tasks)
    assert {1, 2, 3, 4, 5} <= set(features)
    assert max(features) > 50
    assert 0.3 < features[2] / N_TASKS < 0.55


def test_every_kind_occurs(tasks: list[SyntheticTask]) -> None:
    kinds = Counter(task.kind for task in tasks)
    assert set(kinds) == {"geometric", "table"}
    assert 0.4 < kinds["geometric"] / N_TASKS < 0.6
    expected = {
        "layout": {*LAYOUT_WEIGHTS, *TABLE_KINDS},
        "columns": set(STYLES),
        "kinds": set(KINDS),
        "sizes": {"even", "uneven", "contrast", "by area"},
        "extents": {"equal", "varied", "contrast"},
        "warped": {"yes", "no"},
        "bridges": {"yes", "no"},
        "irrelevant_groups": set("23456"),
    }
    assert {key: set(words(tasks, key)) for key in expected} == expected
    irrelevant = [float(fraction) for fraction in words(tasks, "irrelevant")]
    assert min(irrelevant) == 0
    assert 0.5 < max(irrelevant) <= 0.7
    assert 0.03 < sum(number(task, "outliers") > 0 for task in tasks) / N_TASKS < 0.2


def test_every_shape_occurs() -> None:
    settings: dict[str, Any] = {"weights": SHAPES_AND_TABLES, "decorated": 0.0}
    planar, generator = SyntheticPrior(min_points=80, max_points=160, max_features=2, **settings), seeded()
    tasks = [planar.sample_task(generator) for _ in range(500)]
    assert set(words(tasks, "shapes")) == {*SOLIDS, *FLATS, *CURVES}
    assert {task.kind for task in tasks} == {"geometric", "table"}


def test_labels_are_as_recoverable_as_the_target(tasks: list[SyntheticTask]) -> None:
    for task in tasks:
        assert number(task, "target_low") <= number(task, "agreement") <= number(task, "target_high")
        if task.kind == "table" and int(task.labels.min()) >= 0 and len(task.x) <= sampling.MAX_QUERIES:
            measured = sampling.measure_recoverability(task.x, task.labels).agreement
            assert measured == pytest.approx(number(task, "agreement"))
    agreements = {
        kind: [number(task, "agreement") for task in tasks if task.kind == kind] for kind in ("geometric", "table")
    }
    clear = {kind: sum(value >= 0.97 for value in values) / len(values) for kind, values in agreements.items()}
    assert 0.55 < clear["geometric"] < 0.85
    assert 0.2 < clear["table"] < 0.5
    assert min(agreements["table"]) < 0.62


def naive_agreement(x: Tensor, labels: Tensor) -> float:
    """Cohen's kappa of the labels and the vote of eight neighbours, computed in loops."""
    deviation = x.double().std(dim=0, correction=0)
    rows = ((x.double() - x.double().mean(dim=0)) / torch.where(deviation > 0, deviation, 1)).float().double()
    predicted = []
    for index, row in enumerate(rows):
        distance = (rows - row).square().sum(dim=1)
        distance[index] = math.inf
        votes = torch.zeros(int(labels.max()) + 1)
        for rank, near in enumerate(distance.argsort(stable=True)[:8], start=1):
            votes[labels[near]] += 1 / rank
        predicted.append(int(votes.argmax()))
    said, true = (torch.bincount(one, minlength=len(votes)) / len(x) for one in (torch.tensor(predicted), labels))
    chance = float((said * true).sum())
    return (float((torch.tensor(predicted) == labels).float().mean()) - chance) / (1 - chance)


def test_agreement_matches_a_naive_implementation(tasks: list[SyntheticTask]) -> None:
    small = [task for task in tasks if len(task.x) < 100 and task.kind == "geometric" and number(task, "outliers") == 0]
    for task in small[:8]:
        expected = naive_agreement(task.x, task.labels)
        assert sampling.measure_recoverability(task.x, task.labels).agreement == pytest.approx(expected, abs=0.02)


def test_agreement_is_0_for_random_labels_and_1_for_separate_clusters() -> None:
    rng = sampling.Rng(seeded())
    labels = sampling.assign_points(400, torch.tensor([0.8, 0.2]), rng).labels
    random = sampling.measure_recoverability(rng.normal(400, 3), labels)
    assert abs(random.agreement) < 4 * 0.057  # its standard deviation over many such sets
    assert random.worst_recall < 0.3
    separate = rng.normal(400, 3) + 20 * labels.unsqueeze(1)
    measured = sampling.measure_recoverability(separate, labels)
    assert measured.agreement == 1
    assert measured == sampling.measure_recoverability(separate * torch.tensor([1e-3, 1.0, 1e3]), labels)


def test_spread_is_fitted_to_the_target() -> None:
    rng = sampling.Rng(seeded())
    members = sampling.assign_points(250, torch.full((3,), 1 / 3), rng)
    location, noise = 3 * members.labels.unsqueeze(1).float(), rng.normal(250, 1)
    draft = sampling.Draft(members.labels, lambda spread: location + spread * noise, sampling.PEAKED, {})
    spreads = []
    for middle in (0.6, 0.75, 0.9):
        fitted = sampling.fit_spread(draft, sampling.Target(middle - 0.03, middle + 0.03))
        assert fitted is not None
        x, agreement = fitted
        assert abs(agreement - middle) <= 0.03
        assert sampling.measure_recoverability(x, members.labels).agreement == agreement
        spreads.append(float((x - location).std()))
    assert spreads == sorted(spreads, reverse=True)
    assert (
        sampling.fit_spread(
            sampling.Draft(members.labels, lambda _: noise, sampling.PEAKED, {}), sampling.Target(0.6, 1.0)
        )
        is None
    )


@pytest.mark.usefixtures("untouched_random_state")
def test_the_seed_determines_the_tasks_for_any_number_of_threads() -> None:
    prior, before = SyntheticPrior(min_points=300, max_points=800), torch.get_num_threads()
    sampled = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            generator = seeded(11)
            sampled.append([prior.sample_task(generator) for _ in range(24)])
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for first, second in zip(*sampled, strict=True):
        torch.testing.assert_close(first.x, second.x, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(first.labels, second.labels)
        assert (first.kind, first.categories, first.description) == (second.kind, second.categories, second.description)
    assert len({float(task.x.nansum()) for task in sampled[0]}) == 24


def test_batches_have_one_shape_and_no_outliers() -> None:
    generator, shapes = seeded(1), set()
    for _ in range(6):
        batch = SMALL.sample(3, generator)
        assert batch.x.shape[:2] == batch.labels.shape == batch.valid.shape
        assert len(batch.x) == 3
        assert batch.valid.all()
        assert batch.x.isfinite().all()
        assert all(int(torch.bincount(labels).min()) >= sampling.MIN_CLUSTER_SIZE for labels in batch.labels)
        shapes.add(batch.x.shape)
    assert len(shapes) == 6
    assert isinstance(SMALL, TaskSampler)
    assert TASKS["universal"] is SyntheticPrior


@given(st.integers(0, 2**32), st.integers(20, 200), st.integers(1, 64), st.integers(2, 12), st.booleans())
def test_tasks_keep_to_any_settings(seed: int, points: int, features: int, clusters: int, decorated: bool) -> None:
    limits: dict[str, Any] = {"min_points": points, "max_points": points, "max_clusters": clusters}
    prior = SyntheticPrior(**limits, max_features=features, decorated=float(decorated))
    task = prior.sample_task(seeded(seed))
    largest = task.kind == "structureless/largest-cluster"
    assert len(task.x) <= points if largest else len(task.x) == points
    assert decorated or task.x.isfinite().all()
    assert decorated or task.x.shape[1] <= max(2, features)
    assert not task.x.isinf().any()
    sizes = torch.bincount(task.labels[task.labels >= 0])
    assert len(sizes) <= clusters
    assert (len(sizes) == 1) == task.kind.startswith("structureless")
    assert int(sizes.min()) >= sampling.MIN_CLUSTER_SIZE


@given(st.integers(0, 2**32), st.integers(2, 20), st.integers(100, 300))
def test_cluster_sizes_follow_the_proportions(seed: int, n_clusters: int, n_points: int) -> None:
    rng = sampling.Rng(seeded(seed))
    proportions, _ = sampling.sample_proportions(n_clusters, rng)
    members = sampling.assign_points(n_points, proportions, rng)
    expected = sampling.MIN_CLUSTER_SIZE + proportions * (n_points - sampling.MIN_CLUSTER_SIZE * n_clusters)
    assert int(members.sizes().sum()) == n_points
    assert float((members.sizes() - expected).abs().max()) <= 1.01
    for cluster in range(n_clusters):
        rank = members.rank()[members.labels == cluster]
        assert rank.tolist() == list(range(len(rank)))


@pytest.mark.parametrize("kind", [*SOLIDS, *FLATS, *CURVES])
@pytest.mark.parametrize("shared", [False, True])
def test_shapes_have_a_radius_of_about_1(kind: str, shared: bool) -> None:
    rng = sampling.Rng(seeded())
    members = sampling.Memberships(rng.integers(0, 3, 400), 4, shared)
    if kind in SOLIDS:
        points = SOLIDS[kind](members, 2, rng)
        assert SOLIDS[kind](members, 5, rng).shape == (400, 5)
    else:
        points = FLATS[kind](members, rng) if kind in FLATS else thick_curve(kind, members, rng)
    assert points.shape == (400, 2)
    assert 0.15 < float(points.norm(dim=1).median()) < 1.3
    assert float(points.norm(dim=1).quantile(0.95)) < 2.2


@pytest.mark.parametrize("name", CENTRE_LAYOUTS)
@pytest.mark.parametrize("n_features", [1, 2, 3, 7])
def test_layouts_keep_clusters_apart(name: str, n_features: int) -> None:
    for seed in range(5):
        centres = CENTRE_LAYOUTS[name](torch.ones(12), n_features, sampling.Rng(seeded(seed)))
        assert centres.shape == (12, n_features)
        apart = torch.cdist(centres, centres).fill_diagonal_(math.inf)
        assert float(apart.amin(dim=1).median()) > (1.0 if n_features > 1 else 0.2)


@pytest.mark.parametrize("style", STYLES)
def test_columns_are_of_their_kind(style: str) -> None:
    rng = sampling.Rng(seeded())
    transforms = sample_columns(30, rng, style)
    table = transforms(rng.normal(200, 30))
    assert table.shape == (200, 30)
    assert table.isfinite().all()
    for start, stop in transforms.blocks:
        assert torch.equal(table[:, start:stop].sum(dim=1), torch.ones(200))
    for column, kind in enumerate(transforms.kinds):
        levels = len(set(table[:, column].tolist()))
        assert levels <= {"binary": 2, "category": 2, "ordinal": 5, "whole": 60}.get(kind, 200)
        if kind in {"plain", "exponential", "heavy", "squashed"}:
            assert levels > 150
    assert set(transforms.kinds) <= set(STYLES[style])


def test_outliers_are_labelled_minus_1_and_constant_columns_become_0() -> None:
    x, labels = sampling.add_outliers(torch.zeros(20, 2), torch.zeros(20, dtype=torch.int64), 5, sampling.Rng(seeded()))
    assert len(x) == len(labels) == 25
    assert int((labels == -1).sum()) == 5
    rows = sampling.standardise(torch.tensor([[1.0, 7e5], [3.0, 7e5]]))
    assert rows.tolist() == [[-1.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    "settings",
    [{"min_points": 10}, {"min_points": 300, "max_points": 200}, {"max_features": 0}, {"max_features": 65},
     {"max_clusters": 1}, {"decorated": -1.0}, {"split": "all"}],
)  # fmt: skip
def test_invalid_settings_are_rejected(settings: dict[str, Any]) -> None:
    name, value = next(iter(settings.items()))
    with pytest.raises(ConfigError, match=f"{name}={value!r}"):
        SyntheticPrior(**settings)
