"""One API: the same concept has the same name, place and default in all six estimators."""

import inspect
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs

from coterie import AMCP, DAC, TCC, AttentionBasedClustering, ClAM, Coterie
from coterie.base import BaseClusterer
from coterie.errors import InputError
from coterie.methods import METHODS, get_method
from coterie.progress import Progress
from coterie.validation import Integer
from tests.test_estimators import FAST

ESTIMATORS = {name: get_method(name).load_estimator() for name in METHODS}
PUBLISHED = (AMCP, DAC, TCC, AttentionBasedClustering, ClAM)
WITH_WEIGHTS = (AMCP, DAC, AttentionBasedClustering, Coterie)
LAST = ("random_state", "device", "verbose", "callback")
SHARED_DEFAULTS = {"random_state": None, "verbose": False, "callback": None, "device": "auto"}
CHECKED_WHEN_USED = {"random_state"}
FITTED = (
    "labels_",
    "n_clusters_",
    "probabilities_",
    "cluster_centers_",
    "n_features_in_",
    "feature_names_in_",
    "notes_",
    "table_",
)
METHOD_NAMES = ("fit", "fit_predict", "predict", "predict_proba", "save", "load", "get_params", "set_params")
X = make_blobs(60, 3, centers=3, cluster_std=0.5, random_state=0)[0]


@pytest.fixture(params=list(ESTIMATORS), ids=list(ESTIMATORS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def estimator(name: str) -> type[BaseClusterer]:
    return ESTIMATORS[name]


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    models = {name: kind(**({"random_state": 0} | FAST[name])) for name, kind in ESTIMATORS.items()}
    return {name: model.fit(frame) for name, model in models.items()}


def parameters(estimator: type[BaseClusterer]) -> list[inspect.Parameter]:
    return list(inspect.signature(estimator.__init__).parameters.values())[1:]


def documented(estimator: type[BaseClusterer], section: str) -> set[str]:
    """Return the names of the entries of a numpydoc section."""
    doc = inspect.cleandoc(estimator.__doc__ or "")
    body = doc.split(f"\n{section}\n{'-' * len(section)}\n")[1].split("\n\nExamples\n")[0]
    body = re.split(r"\n\n\w[^\n]*\n-{3,}\n", body)[0]
    return {part.strip() for names in re.findall(r"^(\w[\w, ]*) :", body, re.MULTILINE) for part in names.split(",")}


def test_n_clusters_comes_first_and_the_rest_is_by_keyword(estimator: type[BaseClusterer]) -> None:
    first, *others = parameters(estimator)
    assert (first.name, first.kind) == ("n_clusters", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    assert first.default == (10 if estimator is TCC else first.default)
    assert {parameter.kind for parameter in others} == {inspect.Parameter.KEYWORD_ONLY}


def test_shared_parameters_come_last_in_one_order_with_one_default(estimator: type[BaseClusterer]) -> None:
    names = [parameter.name for parameter in parameters(estimator)]
    shared = [name for name in LAST if name in names]
    assert names[-len(shared) :] == shared
    assert ("device" in names) == (estimator is not Coterie)
    assert {p.name: p.default for p in parameters(estimator) if p.name in LAST} == {
        name: SHARED_DEFAULTS[name] for name in shared
    }
    assert ("weights" in names) == (estimator in WITH_WEIGHTS)
    before = [name for name in ("weights", "scaling", "noise") if name in names]
    assert names[-len(shared) - len(before) : -len(shared)] == before


def test_methods_exist(estimator: type[BaseClusterer]) -> None:
    assert all(callable(getattr(estimator, name)) for name in METHOD_NAMES)
    assert hasattr(estimator, "faithful") == (estimator in PUBLISHED)
    assert hasattr(estimator, "learn") == (estimator in {AMCP, DAC, AttentionBasedClustering})


@pytest.mark.parametrize("estimator", PUBLISHED)
def test_faithful_accepts_overrides(estimator: Any) -> None:
    arguments = (3,) if estimator in {ClAM, TCC} else ()
    model = estimator.faithful(*arguments, random_state=5, verbose=True)
    assert (model.random_state, model.verbose) == (5, True)
    assert model.get_params() != estimator(*arguments, random_state=5, verbose=True).get_params()


def test_every_parameter_and_attribute_is_documented_and_none_else(name: str, fitted: dict[str, Any]) -> None:
    estimator = ESTIMATORS[name]
    assert documented(estimator, "Parameters") == {parameter.name for parameter in parameters(estimator)}
    public = {key for key in vars(fitted[name]) if key.endswith("_") and not key.startswith("_")}
    optional = {"evaluation_"}  # after learn
    assert documented(estimator, "Attributes") - optional == public - {"model_"}


def test_fitted_attributes_exist_and_mean_something(name: str, fitted: dict[str, Any]) -> None:
    model = fitted[name]
    assert all(hasattr(model, attribute) for attribute in FITTED)
    assert (model.labels_.shape, model.probabilities_.shape) == ((60,), (60, model.n_clusters_))
    assert model.cluster_centers_.shape == (model.n_clusters_, 3)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert isinstance(model.notes_, tuple)
    for attribute in ("history_", "runs_"):
        assert vars(model).get(attribute) not in ({}, [], {"loss": []})


def test_every_parameter_has_a_constraint(estimator: type[BaseClusterer]) -> None:
    names = {parameter.name for parameter in parameters(estimator)}
    assert estimator.constraints.keys() == names - CHECKED_WHEN_USED


def test_wrong_values_are_rejected_by_name(name: str) -> None:
    estimator = ESTIMATORS[name]
    for parameter, constraints in estimator.constraints.items():
        allowed = constraints if isinstance(constraints, tuple) else (constraints,)
        wrong: list[Any] = [object()]
        if any(isinstance(constraint, Integer) for constraint in allowed):
            wrong += [value for value in (2.5, True) if not any(constraint.accepts(value) for constraint in allowed)]
        for value in wrong:
            with pytest.raises(InputError, match=f"{parameter}="):
                estimator(**FAST[name]).set_params(**{parameter: value}).fit(X)
    with pytest.raises(InputError, match="random_state"):
        estimator(**FAST[name]).set_params(random_state="seed").fit(X)


def test_former_parameter_names_warn_and_work(estimator: type[BaseClusterer]) -> None:
    for former, present in estimator.renamed_parameters.items():
        value = inspect.signature(estimator.__init__).parameters[present].default
        with pytest.warns(FutureWarning, match=f"{former} of {estimator.__name__} was renamed to {present}"):
            model = estimator(**{former: value})
        assert model.get_params() == estimator().get_params()
        with pytest.warns(FutureWarning, match=former):
            estimator().set_params(**{former: value})


def test_former_attributes_warn_and_work(name: str, fitted: dict[str, Any]) -> None:
    for attribute in ESTIMATORS[name].former_attributes:
        with pytest.warns(FutureWarning, match=attribute):
            getattr(fitted[name], attribute)
        assert not hasattr(ESTIMATORS[name](**FAST[name]), attribute)


@pytest.mark.parametrize("estimator", [DAC, AMCP])
@pytest.mark.parametrize("weights", [None, "some-name", Path("some.safetensors")], ids=str)
def test_weights_may_still_be_the_first_argument(estimator: Any, weights: Any) -> None:
    with pytest.warns(FutureWarning, match="pass weights="):
        model = estimator(weights)
    assert (model.n_clusters, model.weights) == ("auto", weights)


@pytest.mark.parametrize("estimator", [Coterie, AttentionBasedClustering])
def test_n_clusters_none_still_means_auto(estimator: Any) -> None:
    expected = estimator(random_state=0).fit_predict(X)
    with pytest.warns(FutureWarning, match="auto"):
        labels = estimator(n_clusters=None, random_state=0).fit_predict(X)
    np.testing.assert_array_equal(labels, expected)


def test_turned_is_the_former_name_of_random_rotations() -> None:
    tasks = [(X, np.zeros(60))]
    with pytest.warns(FutureWarning, match="turned was renamed to random_rotations"):
        DAC(weights=None, density="none", random_state=0).learn(tasks, steps=1, batch_size=1, turned=False)


def test_n_clusters_is_a_number_or_auto_where_the_method_permits() -> None:
    finds_the_number: tuple[Any, ...] = (DAC, AMCP)
    for estimator in finds_the_number:
        with pytest.raises(InputError, match=r"n_clusters=3 must be 'auto': .* finds the number of clusters itself"):
            estimator(3).fit(X)
    automatic: Any = "auto"
    with pytest.raises(InputError, match=r"auto.*number of clusters|n_clusters='auto'"):
        TCC(automatic).fit(X)
    for kind in (Coterie, ClAM, AttentionBasedClustering):
        assert kind(2, random_state=0).fit(X).n_clusters_ == 2
        with pytest.raises(InputError, match="n_clusters=61 is more than n_samples=60"):
            kind(61).fit(X)


def test_progress_is_reported_and_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Progress] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ESTIMATORS[name](**({"random_state": 0} | FAST[name])).set_params(verbose=True, callback=seen.append).fit(X)
    assert seen
    assert all(isinstance(progress, Progress) and str(progress) for progress in seen)
    assert capsys.readouterr().err.startswith(f"{ESTIMATORS[name].__name__}: ")


def test_saved_models_keep_their_parameters(name: str, fitted: dict[str, Any], tmp_path: Path) -> None:
    model = fitted[name]
    model.save(tmp_path / "model.safetensors")
    loaded = ESTIMATORS[name].load(tmp_path / "model.safetensors")
    saved = {name: value for name, value in model.get_params().items() if not isinstance(value, dict)}
    assert saved.items() <= loaded.get_params().items()
    for attribute in ("n_clusters_", "notes_", "n_features_in_"):
        assert getattr(loaded, attribute) == getattr(model, attribute)


def test_a_former_name_beside_the_present_one_is_rejected() -> None:
    both: dict[str, Any] = {"judge": "judge-v2", "weights": "judge-v2"}
    with (
        pytest.warns(FutureWarning, match="renamed to weights"),
        pytest.raises(InputError, match="both judge and weights"),
    ):
        Coterie(**both)


def test_numpy_numbers_are_saved_with_a_model(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    n_clusters: Any = np.int64(3)
    Coterie(n_clusters, effort="fast", random_state=0).fit(X).save(tmp_path / "model.safetensors")
    assert Coterie.load(tmp_path / "model.safetensors").n_clusters == 3
