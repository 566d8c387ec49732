"""Groups of many clusters."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from coterie.base import Selection
from coterie.reporting.data import ClusteringData
from coterie.reporting.formatting import grouped_colours
from coterie.reporting.groups import GROUPED_FROM, group_clusters
from coterie.reporting.page import render_report
from coterie.reporting.profile import feature_statistics
from coterie.tables.table import Table, as_table
from tests.reporting.pages import GivenClusterer, Structure, data_of

N_CLUSTERS = 24


def labels_and_table() -> tuple[NDArray[np.int64], Table]:
    """Return 24 clusters, the largest first, in three regions: those with the same remainder by three are near."""
    sizes = 30 - np.arange(N_CLUSTERS)
    labels = np.repeat(np.arange(N_CLUSTERS), sizes)
    rng = np.random.default_rng(0)
    offsets = rng.normal(size=(N_CLUSTERS, 4))
    offsets += 50.0 * (np.arange(N_CLUSTERS) % 3)[:, None]
    return labels, as_table(offsets[labels] + 0.01 * rng.normal(size=(len(labels), 4)))


def many_clusters() -> ClusteringData:
    labels, table = labels_and_table()
    return data_of(GivenClusterer().fit_given(table, labels), table)


def selection_of(parents: dict[int, list[int] | None], chosen: int = N_CLUSTERS) -> Selection:
    levels = [
        {"n_clusters": number, "algorithm": "k-means", "columns": "raw", "score": 0.5, "parents": own}
        for number, own in sorted(parents.items())
    ]
    result = next(level for level in levels if level["n_clusters"] == chosen)
    nothing: Any = lambda *_: []  # noqa: E731
    return Selection(0.5, levels, levels, result, None, nothing, nothing)


def test_clusters_are_grouped_by_the_tree_of_their_means() -> None:
    data = many_clusters()
    groups = group_clusters(data, None, feature_statistics(data))
    assert 3 <= len(groups) <= 12
    assert sorted(number for group in groups for number in group.clusters) == list(range(N_CLUSTERS))
    assert all(len({number % 3 for number in group.clusters}) == 1 for group in groups)
    sizes = [group.size for group in groups]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == len(data.labels)
    assert [group.number for group in groups] == list(range(len(groups)))
    assert all(group.name for group in groups)
    assert all(list(group.clusters) == sorted(group.clusters) for group in groups)  # the largest first


def test_a_coarser_level_that_nests_is_used() -> None:
    data = many_clusters()
    finer = [number // 2 for number in range(N_CLUSTERS)]
    selection = selection_of({N_CLUSTERS: finer, 12: [number // 4 for number in range(12)], 3: None, 7: None})
    groups = group_clusters(data, selection, None)
    assert [group.clusters for group in groups[:2]] == [(0, 1), (2, 3)]
    assert len(groups) == 12
    assert {group.name for group in groups} == {""}


def test_a_level_that_puts_most_clusters_together_is_not() -> None:
    data = many_clusters()
    selection = selection_of({N_CLUSTERS: [0] * 22 + [1, 2], 3: None})
    assert max(len(group.clusters) for group in group_clusters(data, selection, None)) <= N_CLUSTERS / 2


def test_few_clusters_are_not_grouped() -> None:
    n = GROUPED_FROM - 1
    table = as_table(np.random.default_rng(0).normal(size=(40, 3)))
    data = data_of(GivenClusterer().fit_given(table, np.arange(40) % n), table)
    assert group_clusters(data, None, None) == ()


def test_colours_of_a_group_differ_and_are_one_per_cluster() -> None:
    colours = grouped_colours([(2, 0, 4), (1, 3)])
    assert len({colour.light for colour in colours}) == len({colour.dark for colour in colours}) == 5
    many = grouped_colours([range(40), range(40, 77)])
    assert len({colour.light for colour in many}) == 77
    assert grouped_colours([]) == []


def test_the_page_lists_groups_that_open() -> None:
    labels, table = labels_and_table()
    page = render_report(GivenClusterer().fit_given(table, labels), table, title="", source="")
    structure = Structure(page)
    assert {f"cluster-{k}" for k in range(N_CLUSTERS)} <= structure.ids()
    groups = [a for tag, a in structure.tags if tag == "button" and "data-group" in a]
    assert sum(len(str(a["data-group"]).split(",")) for a in groups) == N_CLUSTERS
    buttons = [a for tag, a in structure.tags if tag == "button" and "data-cluster" in a]
    assert len(buttons) == N_CLUSTERS
    assert sum(tag == "details" and a.get("class") == "group" for tag, a in structure.tags) == 2 * len(groups)
    assert "12 more clusters" in structure.text


@pytest.mark.parametrize("n_clusters", [13, 40])
def test_equal_means_are_grouped_somehow(n_clusters: int) -> None:
    table = as_table(np.ones((80, 2)))
    data = data_of(GivenClusterer().fit_given(table, np.arange(80) % n_clusters), table)
    groups = group_clusters(data, None, feature_statistics(data))
    assert sorted(number for group in groups for number in group.clusters) == list(range(n_clusters))
