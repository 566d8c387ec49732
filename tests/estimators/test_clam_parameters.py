"""Parameters of ClAM that cannot be used are refused by name."""

from typing import Any

import numpy as np
import pytest

from coterie import ClAM
from coterie.errors import InputError

ROWS = np.random.default_rng(0).normal(size=(20, 3))

BAD = [
    ("n_clusters", 0),
    ("n_clusters", -2),
    ("n_clusters", 2.5),
    ("n_clusters", True),
    ("n_clusters", "many"),
    ("n_clusters", None),
    ("n_clusters", 21),
    ("max_clusters", 0),
    ("beta", 0.0),
    ("beta", -1.0),
    ("beta", float("nan")),
    ("beta", float("inf")),
    ("beta", "hot"),
    ("beta", ()),
    ("beta", None),
    ("beta", ["a"]),
    ("steps", 0),
    ("steps", 1.5),
    ("learning_rate", 0),
    ("learning_rate", [0.1, -0.1]),
    ("learning_rate", "fast"),
    ("learning_rate", None),
    ("mask_rate", 0.0),
    ("mask_rate", 1.0),
    ("mask_rate", None),
    ("fill", "median"),
    ("fill", ["mean", "mode"]),
    ("fill", ()),
    ("fill", None),
    ("n_restarts", 0),
    ("init", "random"),
    ("init", np.zeros((2, 3))),
    ("init", np.zeros((3, 2))),
    ("init", np.zeros(3)),
    ("init", None),
    ("select", "best"),
    ("min_cluster_size", -1),
    ("min_cluster_size", 1.5),
    ("min_cluster_size", "small"),
    ("objective", "hidden"),
    ("metric", "hamming"),
    ("metric", None),
    ("prototype_weights", "given"),
    ("prototype_weights", [1.0, 2.0]),
    ("prototype_weights", [1.0, -1.0, 1.0]),
    ("prototype_weights", [1.0, np.inf, 1.0]),
    ("prototype_weights", ["a", "b", "c"]),
    ("scaling", "minmax"),
    ("epochs", 0),
    ("epochs", "few"),
    ("batch_size", 0),
    ("batch_size", "large"),
    ("device", "abacus"),
    ("device", 3.5),
    ("random_state", "seed"),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{name}={value}" for name, value in BAD])
def test_bad_parameters_are_refused_by_name(name: str, value: Any) -> None:
    settings: dict[str, Any] = {"n_clusters": 3, "epochs": 1, "n_restarts": 1}
    if name == "max_clusters":
        settings["n_clusters"] = "auto"
    with pytest.raises(InputError, match=name):
        ClAM(**(settings | {name: value})).fit(ROWS)


@pytest.mark.parametrize(
    "weight", [np.ones(3), np.ones((20, 1)), np.full(20, -1.0), np.zeros(20), np.full(20, np.nan), ["a"] * 20], ids=str
)
def test_bad_row_weights_are_refused(weight: Any) -> None:
    with pytest.raises(InputError, match="sample_weight"):
        ClAM(3, epochs=1, n_restarts=1).fit(ROWS, sample_weight=weight)


def test_given_starts_need_a_number_of_clusters() -> None:
    with pytest.raises(InputError, match=r"init has 3 rows.*n_clusters \(now 'auto'\)"):
        ClAM("auto", init=np.zeros((3, 3))).fit(ROWS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clusters", np.int64(3)),
        ("n_clusters", 20),
        ("n_clusters", 1),
        ("beta", np.float32(2.0)),
        ("beta", np.array([0.5, 1.0])),
        ("mask_rate", [0.1, 0.5]),
        ("fill", ("mean", "min", "max")),
        ("init", "spread"),
        ("init", "data"),
        ("init", "normal"),
        ("init", ROWS[:3].tolist()),
        ("min_cluster_size", 4),
        ("prototype_weights", [1.0, 2.0, 3.0]),
        ("prototype_weights", "learned"),
        ("scaling", "none"),
        ("batch_size", 1000),
        ("steps", 1),
        ("plateau", True),
        ("device", "cpu"),
    ],
    ids=str,
)
def test_good_parameters_are_taken(name: str, value: Any) -> None:
    settings: dict[str, Any] = {"n_clusters": 3, "epochs": 2, "n_restarts": 1, "random_state": 0}
    model = ClAM(**(settings | {name: value})).fit(ROWS)
    assert np.isfinite(model.cluster_centers_).all()
    assert model.n_clusters_ == (value if name == "n_clusters" else 3)
    np.testing.assert_array_equal(model.predict(ROWS), model.labels_)


def test_legacy_masks_that_would_hide_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="mask_rate"):
        ClAM(3, legacy_mask=True, mask_rate=0.1, epochs=2).fit(ROWS)


def test_several_values_make_several_runs() -> None:
    grid: dict[str, Any] = {
        "beta": [0.5, 1.0],
        "learning_rate": (0.1, 0.2),
        "mask_rate": [0.2, 0.4],
        "fill": ("mean", "max"),
    }
    model = ClAM(3, **grid, n_restarts=2, epochs=1, halving=False).fit(ROWS)
    assert len(model.runs_) == 2**5
    assert len({tuple(run[key] for key in ("beta", "rate", "mask_rate", "fill")) for run in model.runs_}) == 2**4


def test_halving_trains_the_better_runs_to_the_end() -> None:
    settings: dict[str, Any] = {"n_restarts": 8, "epochs": 6, "beta": 1.0, "random_state": 0}
    halved, whole = ClAM(3, **settings).fit(ROWS), ClAM(3, **settings, halving=False).fit(ROWS)
    assert len(halved.runs_) < len(whole.runs_) == 16
    assert "went on to the end" in halved.notes_[0]


def test_a_smallest_size_is_kept_to_where_it_can_be() -> None:
    outlier = np.concatenate([ROWS, [[50.0, 50.0, 50.0]]])
    settings: dict[str, Any] = {"n_restarts": 8, "epochs": 3, "beta": 4.0, "random_state": 0, "scaling": "standard"}
    assert np.bincount(ClAM(2, **settings, min_cluster_size=5).fit(outlier).labels_).min() >= 5
    impossible = ClAM(2, **settings, min_cluster_size=15).fit(outlier)
    assert "no run kept every cluster above" in impossible.notes_[-1]
