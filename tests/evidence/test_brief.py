"""What is laid before the judge: evidence by columns, steps between numbers of clusters, and proposals that join."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.judged.candidates.candidate import Proposal, by_size
from coterie.judged.candidates.registry import propose
from coterie.judged.features.table import BRIEF, FEATURES, STEPPED, STEPS, Case, evidence_of, steps_of
from coterie.judged.space import Space
from tests.proposals.sets import blobs

COLUMNS = FEATURES[FEATURES.index("column_best") :]


def by_columns(x: np.ndarray, *labels: np.ndarray) -> dict[str, list[float]]:
    evidence = evidence_of(Space.of(x), np.stack(labels))
    return {name: evidence[:, FEATURES.index(name)].tolist() for name in COLUMNS}


def test_classes_show_in_their_columns_and_chance_in_none() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2, 3], 50)
    x = np.hstack([5.0 * rng.normal(size=(4, 2))[truth] + 0.1 * rng.normal(size=(200, 2)), rng.normal(size=(200, 8))])
    x /= x.std(axis=0)
    found = by_columns(x, truth, rng.permutation(truth))
    assert found["column_best"][0] > 0.99
    assert found["column_best"][1] < 0.1
    assert found["columns_mostly_explained"] == pytest.approx([0.2, 0.0])
    assert found["columns_mattering"][0] == pytest.approx(0.2, abs=0.02)
    assert found["columns_idle"][0] == pytest.approx(0.8, abs=0.11)
    assert found["columns_idle"][1] > 0.8


def test_variance_between_clusters_by_hand() -> None:
    x = np.array([[-1.0, 1.0], [-1.0, -1.0], [1.0, 1.0], [1.0, -1.0]])
    found = by_columns(x, np.array([0, 0, 1, 1]))
    assert found["column_best"] == [1.0]
    assert found["column_median"] == [0.5]
    assert found["columns_mattering"] == [0.5]


@pytest.mark.parametrize("x", [np.zeros((5, 2)), np.ones((6, 300)), np.arange(8.0)[:, None]])
def test_odd_columns_give_finite_numbers(x: np.ndarray) -> None:
    found = by_columns(x, np.arange(len(x)) % 2, np.arange(len(x)))
    assert np.isfinite(list(found.values())).all()


@given(st.integers(0, 10_000), st.integers(1, 40))
def test_steps_go_to_the_next_number_of_the_same_series(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    evidence = rng.normal(size=(count, len(FEATURES))).astype(np.float32)
    n_clusters, series = rng.integers(2, 8, count), rng.integers(0, 3, count)
    steps = steps_of(evidence, n_clusters, series)
    assert steps.shape == (count, len(STEPS))
    assert np.isfinite(steps).all()
    values = evidence[:, FEATURES.index(STEPPED[0])]
    for one in range(count):
        same = series == series[one]
        fewer, more = same & (n_clusters < n_clusters[one]), same & (n_clusters > n_clusters[one])
        near = [same & (n_clusters == n_clusters[fewer].max())] if fewer.any() else []
        expected = values[one] - values[near[0]] if near else np.zeros(1)
        assert np.isclose(expected, steps[one, 0], atol=1e-6).any()
        near = [same & (n_clusters == n_clusters[more].min())] if more.any() else []
        expected = values[near[0]] - values[one] if near else np.zeros(1)
        assert np.isclose(expected, steps[one, len(STEPPED)], atol=1e-6).any()


def test_those_who_join_are_seen_as_if_they_had_been_there() -> None:
    x, truth = blobs(80)
    proposals = propose(x, effort="fast", seed=0)
    late = Proposal(
        *by_size(np.where(truth == 3, 2, truth)), "Ward linkage", "standardised", "neighbours", refined=True
    )
    whole, joined = Case.of(x, [*proposals, late]), Case.of(x, proposals).joined_by([late])
    assert joined.proposals == whole.proposals
    np.testing.assert_allclose(joined.brief(), whole.brief(), rtol=1e-5, atol=1e-6)
    assert joined.brief().shape == (len(proposals) + 1, len(BRIEF))
