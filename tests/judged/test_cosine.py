"""Embeddings: how they are recognised, the geometry of their directions, communities, features and the whole fit."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

from coterie import Coterie, load
from coterie.errors import InputError
from coterie.judged.assign import Assigner, SimilarRows
from coterie.judged.candidates.communities import (
    communities,
    community_weights,
    find_communities,
    merge_communities,
    nested_communities,
)
from coterie.judged.candidates.registry import ALGORITHMS, Candidate, generate_candidates, order_by_size
from coterie.judged.columns import Columns
from coterie.judged.cosine import CosineGeometry, CosineSpace, Metric, metrics_to_try
from coterie.judged.features.embeddings import EMBEDDING_FEATURES, EMBEDDING_STEPPED, embedding_features
from coterie.judged.features.table import FEATURE_SETS, CandidateFeatures, column_names
from coterie.judged.preparation import Preparation
from coterie.judged.space import Floats, Labels, Singles
from coterie.judged.views import CosineView, restore_view
from coterie.reporting.page import render_report
from coterie.tables.table import as_table


def embeddings(n: int = 300, d: int = 48, k: int = 6, seed: int = 0, spread: float = 0.5) -> tuple[Singles, Labels]:
    """Unit vectors around k directions, with a common offset as encoders have it."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % k
    x = rng.normal(size=(k, d))[labels] + spread * rng.normal(size=(n, d)) + rng.normal(size=d)
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), labels


def space_of(x: npt.NDArray[np.float32]) -> CosineSpace:
    preparation = Preparation.fit(as_table(x), np.arange(len(x)))
    encoded = preparation.encode(as_table(x))
    return CosineSpace(encoded, preparation.columns, CosineView.fit(encoded, *preparation.units))


def metrics_of(x: object) -> tuple[Metric, ...]:
    table = as_table(x)
    preparation = Preparation.fit(table, np.arange(table.n_rows))
    return metrics_to_try(preparation, preparation.encode(table))


def test_embeddings_are_recognised_and_tables_are_not() -> None:
    rng = np.random.default_rng(0)
    unit = embeddings()[0]
    assert metrics_of(unit) == ("cosine",)
    assert metrics_of(unit.astype(np.float16)) == ("cosine",)
    assert metrics_of(np.maximum(rng.normal(size=(300, 512)), 0.0)) == ("cosine",)  # activations of any length
    assert metrics_of(np.maximum(rng.normal(size=(200, 512)), 0.0)) == ("euclidean",)  # few rows
    assert metrics_of(rng.normal(size=(300, 11))) == ("euclidean",)  # few columns
    with_gap = unit.copy()
    with_gap[0, 0] = np.nan
    assert metrics_of(with_gap) == ("euclidean",)
    assert metrics_of(unit > 0.0) == ("euclidean",)  # answers of yes and no
    assert metrics_of(rng.integers(0, 3, size=(300, 40)).astype(float)) == ("euclidean",)


def test_wide_tables_of_numbers_are_compared_both_ways() -> None:
    rng = np.random.default_rng(0)
    assert metrics_of(rng.normal(size=(300, 40))) == ("euclidean", "cosine")
    many_units = rng.normal(size=(300, 300)) * 10.0 ** np.linspace(-4, 4, 300)
    assert metrics_of(many_units) == ("euclidean", "cosine")
    in_units = rng.normal(size=(300, 300)) * 10.0 ** np.linspace(-1, 1, 300)
    assert metrics_of(in_units) == ("cosine",)
    assert metrics_of(pd.DataFrame(in_units).add_prefix("x")) == ("euclidean", "cosine")  # a table with names


def test_the_better_one_of_both_metrics_is_taken_and_notes_say_so() -> None:
    directions, labels = embeddings(400, d=60, spread=0.9)
    x = directions * np.random.default_rng(1).lognormal(sigma=1.0, size=(400, 1))  # only directions are informative
    model = Coterie(random_state=0).fit(x)
    assert model.metric_ == "cosine"
    assert model.notes_[0].startswith("Rows were compared column by column, and by direction as embeddings are. The ")
    assert "The result with metric='cosine' was taken: the expected adjusted Rand index is 0." in model.notes_[0]
    assert adjusted_rand_score(labels, model.labels_) > 0.9
    assert model.describe_fit(as_table(x)).columns_meaningful
    rng = np.random.default_rng(0)
    x = 4.0 * rng.normal(size=(3, 20))[np.arange(300) % 3] + rng.normal(size=(300, 20))
    model = Coterie(random_state=0).fit(x)
    assert model.metric_ == "euclidean"
    assert not any("direction" in note for note in model.notes_)  # was not tried: the result was sure


def test_directions_do_not_depend_on_the_encoding_and_the_length_of_rows() -> None:
    x = embeddings(120)[0]
    lengths = np.random.default_rng(1).uniform(0.5, 20.0, size=(len(x), 1)).astype(np.float32)
    first, second = space_of(x).reference.rows, space_of(x * lengths).reference.rows
    np.testing.assert_allclose(first @ first.T, second @ second.T, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1.0, rtol=1e-5)


def test_directions_are_principal_axes_of_centred_unit_rows() -> None:
    x = embeddings(80, d=20)[0]
    view = CosineView.fit(x, np.ones(20), np.zeros(20))
    assert view.name == "cosine"
    centred = x - x.mean(axis=0)
    expected = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    rows = view.transform(x)  # all axes are kept, so that only the rotation differs
    np.testing.assert_allclose(rows @ rows.T, expected @ expected.T, atol=1e-4)
    again = restore_view("cosine", view.to_arrays())
    assert isinstance(again, CosineView)
    np.testing.assert_array_equal(again.transform(x), rows)


def test_rows_of_zeros_and_few_rows_have_finite_directions() -> None:
    x = embeddings(12, d=200)[0]
    x[3] = 0.0
    rows = CosineView.fit(x, np.ones(200), np.zeros(200)).transform(x)
    assert np.isfinite(rows).all()


def test_neighbours_and_distances_of_the_geometry_agree() -> None:
    geometry = space_of(embeddings(90)[0]).reference
    distances = geometry.distances.copy()
    np.fill_diagonal(distances, np.inf)
    np.testing.assert_array_equal(geometry.similar_rows[:, 0], distances.argmin(axis=1))
    np.testing.assert_allclose(geometry.similarities[:, 0], 1.0 - 0.5 * np.square(distances.min(axis=1)), atol=1e-5)


def test_the_graph_is_symmetric_and_each_row_has_the_same_weight() -> None:
    geometry = space_of(embeddings(90)[0]).reference
    graph = geometry.graph(8).toarray()
    np.testing.assert_allclose(graph, graph.T, atol=1e-12)
    assert (graph.diagonal() == 0.0).all()
    assert graph.max() <= 1.0 + 1e-9
    # Every row has one neighbour of weight one, the nearest.
    assert (graph.max(axis=1) > 1.0 - 1e-6).all()


def test_communities_of_separate_groups_are_the_groups() -> None:
    x, labels = embeddings(240, spread=0.3)
    geometry = space_of(x).reference
    assert adjusted_rand_score(labels, find_communities(geometry, 15, 1.0)) == 1.0
    found = [each.max() + 1 for each in communities(geometry, [2, 40], n_neighbours=15)]
    assert found == sorted(found)
    assert max(found) <= 40


def test_nested_communities_are_nested_and_have_the_numbers_asked_for() -> None:
    x, labels = embeddings(240, spread=0.3)
    found = list(nested_communities(space_of(x).reference, [2, 4, 6, 9, 15], n_neighbours=15))
    assert [len(np.unique(each)) for each in found] == [2, 4, 6, 9, 15]
    assert adjusted_rand_score(labels, found[2]) == 1.0
    for coarse, fine in pairwise(found):  # each cluster is within one of the next coarser partition
        assert len(set(zip(coarse.tolist(), fine.tolist(), strict=True))) == len(np.unique(fine))


def test_merging_takes_the_pair_with_the_largest_relative_weight() -> None:
    weights = np.array([[8.0, 1.0, 0.0], [1.0, 2.0, 0.9], [0.0, 0.9, 3.0]])
    # Over the product of the total weights, 1 / (9 x 3.9) is less than .9 / (3.9 x 3.9).
    assert merge_communities(weights).tolist() == [[1, 2], [0, 1]]


def test_weights_between_communities_are_sums() -> None:
    geometry = space_of(embeddings(60)[0]).reference
    labels = np.arange(60) % 3
    weights = community_weights(geometry.graph(10), labels)
    dense = geometry.graph(10).toarray()
    expected = [[dense[np.ix_(labels == a, labels == b)].sum() for b in range(3)] for a in range(3)]
    np.testing.assert_allclose(weights, expected)


def test_features_are_finite_have_meanings_and_do_not_depend_on_names_of_clusters() -> None:
    x, labels = embeddings(150)
    space = space_of(x)
    renamed = (labels + 2) % 6
    one, other = embedding_features(space, np.stack([labels, renamed]))
    assert np.isfinite(one).all()
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert set(EMBEDDING_STEPPED) <= set(EMBEDDING_FEATURES)
    values = dict(zip(EMBEDDING_FEATURES, one.tolist(), strict=True))
    assert values["log_clusters"] == pytest.approx(np.log(6))
    assert values["same_1"] == 1.0
    assert values["kept_weight"] > 0.9
    assert values["modularity"] == pytest.approx(values["kept_weight"] - 1 / 6, abs=0.02)
    assert values["modularity_above_null"] > 0.2
    assert values["eigengap_relative"] == 1.0  # six groups: the gap after the sixth eigenvalue is the largest


def test_a_random_partition_looks_worse_than_the_true_one() -> None:
    x, labels = embeddings(150)
    shuffled = np.random.default_rng(0).permutation(labels)
    table = embedding_features(space_of(x), np.stack([labels, shuffled]))
    values = {name: table[:, column] for column, name in enumerate(EMBEDDING_FEATURES)}
    for name in ("same_12", "modularity", "hold_mean", "hold_to_merge", "nearest_centre", "spherical_gain"):
        assert values[name][0] > values[name][1], name
    for name in ("variance_left", "conductance_rows", "merge_mean"):
        assert values[name][0] < values[name][1], name


def test_candidates_are_those_of_the_metric() -> None:
    space = space_of(embeddings(150)[0])
    found = generate_candidates(space, effort="balanced", seed=0)
    names = {each.algorithm for each in found}
    assert names <= {name for name, each in ALGORITHMS.items() if each.metric == "cosine"}
    assert "communities" in names
    features = CandidateFeatures.compute(space, found)
    assert features.table().shape == (len(found), len(column_names("cosine")))
    assert {f"by {name}" for name in names} <= set(column_names("cosine"))
    assert FEATURE_SETS["cosine"].views == ()


@pytest.mark.parametrize("rule", ["similar rows", "centres"])
def test_training_rows_keep_their_clusters_and_noise_is_small_for_new_ones(rule: str) -> None:
    x, labels = embeddings(240)
    new, their_labels = embeddings(240, spread=0.51)
    space = space_of(x)
    ordered, k = order_by_size(labels)
    assigner = Assigner.fit(space, Candidate(ordered, k, "communities", "cosine", rule))
    np.testing.assert_array_equal(assigner.memberships(space.x).argmax(axis=1), ordered)
    preparation = Preparation.fit(as_table(x), np.arange(len(x)))
    found = assigner.memberships(preparation.encode(as_table(new))).argmax(axis=1)
    assert adjusted_rand_score(their_labels, found) > 0.95
    arrays, names = assigner.to_arrays()
    again = Assigner.from_arrays(arrays, names)
    np.testing.assert_array_equal(again.memberships(space.x), assigner.memberships(space.x))


def test_halves_of_the_geometry_are_of_the_same_kind() -> None:
    geometry = CosineGeometry(space_of(embeddings(60)[0]).reference.rows)
    assert isinstance(type(geometry)(geometry.rows[:30]), CosineGeometry)


def test_a_space_without_geometry_keeps_its_view() -> None:
    space = space_of(embeddings(60)[0])
    light = space.without_geometry()
    np.testing.assert_array_equal(light.reference.rows, space.reference.rows)
    assert not light.discrete.any()
    assert isinstance(light.columns, Columns)


@pytest.fixture(scope="module")
def fitted() -> tuple[Coterie, Singles, Labels]:
    x, labels = embeddings(400, k=8)
    return Coterie(random_state=0).fit(x), x, labels


def test_clusters_of_embeddings_are_found_without_their_number(fitted: tuple[Coterie, Singles, Labels]) -> None:
    model, x, labels = fitted
    assert model.metric_ == "cosine"
    assert model.notes_[0].startswith("The 48 columns look like embeddings: rows are compared by their cosine.")
    assert adjusted_rand_score(labels, model.labels_) > 0.95
    assert model.confidence_ > 0.5
    np.testing.assert_array_equal(model.predict(x), model.labels_)
    np.testing.assert_allclose(model.probabilities_.sum(axis=1), 1.0, rtol=1e-5)
    assert model.cluster_centers_.shape == (model.n_clusters_, 48)


def test_equal_rows_are_in_one_cluster() -> None:
    x, _ = embeddings(200)
    model = Coterie(effort="fast", random_state=0).fit(np.repeat(x, 2, axis=0))
    np.testing.assert_array_equal(model.labels_[::2], model.labels_[1::2])


def test_a_saved_model_of_embeddings_predicts_the_same(fitted: tuple[Coterie, Singles, Labels], tmp_path: Path) -> None:
    model, x, _ = fitted
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.metric_ == "cosine"
    np.testing.assert_array_equal(again.predict(x), model.labels_)
    np.testing.assert_array_equal(again.predict(x[:7]), model.labels_[:7])


@pytest.mark.parametrize("k", [1, 2, 11])
def test_a_given_number_of_clusters_is_kept(k: int) -> None:
    x = embeddings(150)[0]
    assert len(np.unique(Coterie(k, effort="fast", random_state=0).fit(x).labels_)) == k


def test_noise_is_marked_among_embeddings() -> None:
    x, _ = embeddings(200, spread=0.2)
    far = np.random.default_rng(3).normal(size=(3, 48))
    rows = np.vstack([x, far / np.linalg.norm(far, axis=1, keepdims=True)])
    labels = Coterie(effort="fast", noise=True, random_state=0).fit(rows).labels_
    assert (labels[-3:] == -1).all()
    assert (labels[:-3] == -1).mean() < 0.1


def test_a_metric_can_be_asked_for() -> None:
    x = embeddings(120)[0]
    assert Coterie(metric="euclidean", effort="fast", random_state=0).fit(x).metric_ == "euclidean"
    few = x[:, :8]
    model = Coterie(metric="cosine", effort="fast", random_state=0).fit(few)
    assert model.metric_ == "cosine"
    assert not any("look like embeddings" in note for note in model.notes_)


def rows_and_names() -> tuple[Floats, list[str]]:
    return embeddings(60)[0].astype(np.float64), [f"x{column}" for column in range(48)]


def test_what_cosine_cannot_do_is_an_error() -> None:
    x, _ = rows_and_names()
    with pytest.raises(InputError, match="without column_weights"):
        Coterie(metric="cosine", column_weights={"x0": 0.5}).fit(x)
    with pytest.raises(InputError, match="needs columns of numbers, but 'x1' is not one"):
        Coterie(metric="cosine").fit([[1.0, "a"], [2.0, "b"], [3.0, "a"], [4.0, "b"]])
    with pytest.raises(InputError, match="judge for metric='euclidean'"):
        Coterie(metric="cosine", weights="judge-v5").fit(x)
    assert Coterie(weights="judge-v5", effort="fast", random_state=0).fit(x).metric_ == "euclidean"
    # Weights of columns compare them one by one.
    assert Coterie(column_weights={"x0": 0.5}, effort="fast", random_state=0).fit(x).metric_ == "euclidean"


def test_columns_of_embeddings_do_not_describe_clusters(fitted: tuple[Coterie, Singles, Labels]) -> None:
    model, x, _ = fitted
    description = model.describe_fit(as_table(x))
    assert not description.columns_meaningful
    page = render_report(model, as_table(x), title="Topics", source="memory")
    assert "high x" not in page
    assert "low x" not in page


def test_a_single_row_and_equal_rows_have_an_assigner() -> None:
    for rows in (np.eye(1, 4), np.tile(np.eye(1, 4), (5, 1))):
        learned = SimilarRows.fit(CosineGeometry(rows), np.zeros(len(rows), dtype=np.int64))
        np.testing.assert_array_equal(SimilarRows(learned).memberships(rows), np.ones((len(rows), 1)))
