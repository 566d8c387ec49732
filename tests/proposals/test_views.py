"""Forms of the columns."""

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from coterie.judged.space import Floats, View, fit_views, views_of


def normal(n: int = 300, d: int = 4, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=(n, d))


def test_independent_equal_columns_have_only_one_form() -> None:
    assert set(views_of(normal(n=2000))) == {"standardised"}


def test_one_column_is_standardised_only() -> None:
    assert set(views_of(normal(d=1))) == {"standardised"}


@pytest.mark.parametrize(("factor", "raw"), [(1.05, False), (3.0, True), (100.0, False)])
def test_raw_columns_are_kept_where_scales_differ_but_not_wildly(factor: float, raw: bool) -> None:
    x = normal(n=2000) * [1.0, 1.0, 1.0, factor]
    views = views_of(x)
    assert ("raw" in views) == raw
    if raw:
        ratio = np.diff(x, axis=0) / np.diff(views["raw"], axis=0)
        assert np.allclose(ratio, ratio[0, 0])


def test_standardised_columns_have_unit_deviation_and_no_extremes() -> None:
    x = normal() * [1.0, 1e3, 1e-6, 7.0] + [0.0, 1e6, 1.0, 0.0]
    x[0, 0] = 100.0
    z = views_of(x)["standardised"]
    assert np.abs(z).max() == 10.0
    assert np.allclose(z[1:].std(axis=0), 1.0, atol=0.1)


def test_constant_columns_vanish_even_for_new_rows() -> None:
    x = normal()
    x[:, 1] = 0.1
    for view in fit_views(x):
        other = x.copy()
        other[:, 1] = 77.0
        assert np.array_equal(view.transform(x), view.transform(other))


def test_whitened_columns_are_uncorrelated_with_unit_variance() -> None:
    x = normal(n=500)
    x[:, 1] = 0.9 * x[:, 0] + 0.3 * x[:, 1]
    assert np.allclose(np.cov(views_of(x)["whitened"].T, bias=True), np.eye(4), atol=1e-8)


def test_whitening_leaves_out_directions_without_variance() -> None:
    x = normal(n=500, d=3)
    x = np.concatenate([x, x[:, :1] + x[:, 1:2]], axis=1)
    assert views_of(x)["whitened"].shape == (500, 3)


def test_ranks_of_skewed_columns_are_normal_scores() -> None:
    x = np.exp(2.0 * normal(n=200, d=2))
    scores = views_of(x)["ranks"]
    for column in range(2):
        expected = norm.ppf((rankdata(x[:, column]) - 0.5) / len(x))
        kept = np.abs(expected) < 2.0  # the farthest few were clipped together before
        assert np.allclose(scores[kept, column], expected[kept], atol=1e-6)


def test_many_columns_become_at_most_fifty() -> None:
    x = normal(n=80, d=300)
    for rows in views_of(x).values():
        assert rows.shape[1] <= 50


def test_few_rows_of_many_columns_keep_their_distances() -> None:
    x = normal(n=20, d=300)
    (view, *_) = fit_views(x)
    z = np.clip((x - view.centre) / view.scale, -10, 10)
    projected = view.transform(x)
    assert np.allclose(((projected[:, None] - projected) ** 2).sum(-1), ((z[:, None] - z) ** 2).sum(-1))


@pytest.mark.parametrize("d", [3, 70])
def test_views_survive_saving_and_apply_to_new_rows(d: int) -> None:
    x = np.exp(normal(n=150, d=d)) * np.linspace(1, 2, d)
    new = np.exp(normal(n=20, d=d, seed=1))
    views = fit_views(x)
    assert [view.name for view in views] == ["standardised", "ranks", "raw", "whitened"]
    for view in views:
        again = View.from_arrays(view.name, view.to_arrays())
        assert np.array_equal(again.transform(new), view.transform(new))
        assert np.allclose(view.transform(x)[:5], view.transform(x[:5]))
        assert np.isfinite(view.transform(1e300 * new)).all()


def test_scaling_everything_changes_no_view() -> None:
    x = np.exp(normal()) * [1.0, 2.0, 4.0, 8.0]
    for before, after in zip(fit_views(x), fit_views(1e-30 * x), strict=True):
        assert np.allclose(before.transform(x), after.transform(1e-30 * x), atol=1e-6)


def test_huge_values_do_not_overflow() -> None:
    x = normal() * 1e307
    for rows in views_of(x).values():
        assert np.isfinite(rows).all()
