"""What every estimator offers beside fit and predict: report, summary, plot, card, transform, score, one line."""

import copy
import pickle  # noqa: TID251  (scikit-learn's users pickle estimators; Coterie itself does not)
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import coterie
from coterie import AttentionBasedClustering, ClAM, Coterie
from coterie.errors import InputError, MissingExtraError, OutputError, TableError
from coterie.methods import METHODS, get_method
from coterie.tables.readers import example_path, read_table
from tests.test_estimators import FAST

mpl.use("Agg")


def customers(n: int = 90) -> tuple[pd.DataFrame, Any]:
    """Three kinds of customers, with gaps, dates and a level that is HTML, and which kind each is."""
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1, 2], [n // 2, n // 3, n - n // 2 - n // 3])
    frame = pd.DataFrame(
        {
            "age": rng.normal(np.array([30.0, 45.0, 62.0])[kind], 3.0),
            "income ($)": rng.normal(np.array([2000.0, 5000.0, 3000.0])[kind], 200.0),
            "plan": np.array(["basic", "gold", "<b>old</b>"])[kind],
            "since": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 100, n) + 500 * kind, unit="D"),
            "active": rng.random(n) < np.array([0.9, 0.8, 0.1])[kind],
        },
        index=[f"C{i:03d}" for i in range(n)],
    )
    frame.iloc[::11, 1] = np.nan
    return frame, kind


def points_of(ax: Axes) -> Any:
    """Return the positions (n, 2) of the drawn points."""
    return np.ma.filled(np.ma.asarray(ax.collections[0].get_offsets()), np.nan)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return customers()[0]


@pytest.fixture(scope="module")
def model(frame: pd.DataFrame) -> Coterie:
    return coterie.cluster(frame, effort="fast")


@pytest.fixture(scope="module")
def of_all_methods(blobs: Any) -> dict[str, Any]:
    X = pd.DataFrame(blobs[0], columns=list("abcd"), index=np.arange(150) + 1000)
    fitted = {}
    for name in METHODS:
        method = get_method(name).load_estimator()
        fitted[name] = method(**({"random_state": 0} | FAST[name])).fit(X)
    return fitted


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_all_of_it(name: str, of_all_methods: dict[str, Any], blobs: Any, tmp_path: Path) -> None:
    model, (X, truth) = of_all_methods[name], blobs
    rows = pd.DataFrame(X, columns=list("abcd"), index=np.arange(150) + 1000)
    n = model.n_clusters_

    page = model.report(tmp_path / "page.html", truth=truth)
    assert page == tmp_path / "page.html"
    assert "1149" in page.read_text(encoding="utf-8")  # the last row by its label

    summary = model.summary()
    assert isinstance(summary, pd.DataFrame)
    assert summary["cluster"].tolist() == list(range(n))
    assert summary["size"].tolist() == np.bincount(model.labels_, minlength=n).tolist()
    occupied = summary[summary["size"] > 0]
    assert occupied["share"].sum() == pytest.approx(1.0)
    assert [model.labels_[label - 1000] for label in occupied["typical"]] == occupied["cluster"].tolist()
    for cluster, mean in zip(occupied["cluster"], occupied["mean a"], strict=True):
        assert mean == pytest.approx(X[model.labels_ == cluster, 0].mean(), rel=1e-6)

    ax = model.plot(ax=Figure().subplots())
    assert len(points_of(ax)) == 150

    assert f"{n} cluster" in model._repr_html_()
    assert adjusted_rand_score(truth, model.predict(rows)) == pytest.approx(model.score(rows, truth))
    assert np.isfinite(model.score(rows))

    moved = clone(model).set_output(transform="pandas").fit(rows).transform(rows.iloc[5:9])
    assert moved.index.tolist() == [1005, 1006, 1007, 1008]
    assert moved.columns.tolist() == model.get_feature_names_out().tolist()
    assert model.transform(rows).shape == (150, len(moved.columns))


@pytest.mark.parametrize("name", METHODS)
def test_a_loaded_model_describes_the_rows_that_it_is_given(
    name: str, of_all_methods: dict[str, Any], blobs: Any, tmp_path: Path
) -> None:
    model = of_all_methods[name]
    model.save(tmp_path / "model.safetensors")
    loaded = coterie.load(tmp_path / "model.safetensors")
    for call in (loaded.report, loaded.summary, loaded.plot):
        with pytest.raises(InputError, match=r"has no rows: it was loaded.* Give the rows to show as X\."):
            call()
    assert "cluster" in loaded._repr_html_()  # without rows it has less to say
    X = pd.DataFrame(blobs[0], columns=list("abcd"), index=np.arange(150) + 1000)
    pd.testing.assert_frame_equal(loaded.summary(X), model.summary())
    page = str(loaded.report(X=X.iloc[:60]))
    assert "1059" in page
    assert "1060" not in page
    assert len(points_of(loaded.plot(ax=Figure().subplots(), X=X.iloc[:60]))) == 60
    assert loaded.summary(X.iloc[:60])["size"].sum() == 60
    assert "labels_" not in vars(loaded)  # what was shown does not change the model
    np.testing.assert_array_equal(loaded.get_feature_names_out(), model.get_feature_names_out())


def test_a_pickled_or_copied_model_keeps_no_rows(model: Coterie, frame: pd.DataFrame) -> None:
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):  # noqa: S301  (our own)
        assert b"_fitted_rows" not in pickle.dumps(other)
        with pytest.raises(InputError, match="has no rows"):
            other.summary()
        pd.testing.assert_frame_equal(other.summary(frame), model.summary())
        assert "3 clusters" in other._repr_html_()
    assert "_fitted_rows" in vars(model)


def test_adding_the_labels_to_the_frame_changes_nothing() -> None:
    frame, _ = customers()
    model = coterie.cluster(frame, effort="fast")
    before = model.summary()
    frame["cluster"] = model.labels_
    pd.testing.assert_frame_equal(model.summary(), before)
    assert "<h1>" in str(model.report())


def test_summary_describes_clusters_in_the_units_of_the_table(model: Coterie, frame: pd.DataFrame) -> None:
    summary = model.summary().set_index("cluster")
    assert summary.index.tolist() == [0, 1, 2]
    for cluster, row in summary.iterrows():
        members = frame[model.labels_ == cluster]
        assert row["size"] == len(members)
        assert row["share"] == pytest.approx(len(members) / 90)
        assert row["membership"] == pytest.approx(model.probabilities_[model.labels_ == cluster].max(axis=1).mean())
        assert row["typical"] in members.index
        assert row["mean age"] == pytest.approx(members["age"].mean(), rel=1e-6)
        assert row["mean income ($)"] == pytest.approx(members["income ($)"].mean(), rel=1e-6)
        assert row["most frequent plan"] == members["plan"].mode()[0]
        assert abs(row["mean since"] - members["since"].mean()) < pd.Timedelta("1s")
        assert row["mean active"] == pytest.approx(members["active"].mean(), abs=1e-3)
    assert summary["features"].is_unique


@pytest.mark.parametrize("library", ["polars", "pyarrow", "array", "list"])
def test_summary_is_a_frame_of_the_kind_that_was_fitted(library: str, frame: pd.DataFrame) -> None:
    plain = frame.reset_index(drop=True)
    given: dict[str, Any] = {
        "polars": pl.from_pandas(plain),
        "pyarrow": pa.Table.from_pandas(plain),
        "array": plain[["age", "active"]].to_numpy(dtype=float),
        "list": plain[["age", "plan"]].to_numpy().tolist(),
    }
    model = coterie.cluster(given[library], 3, effort="fast")
    summary = model.summary()
    kind: Any = {"polars": pl.DataFrame, "pyarrow": pa.Table}.get(library, pd.DataFrame)
    assert isinstance(summary, kind)
    typical = summary["typical"].to_pylist() if library == "pyarrow" else summary["typical"].to_list()
    assert [model.labels_[row] for row in typical] == [0, 1, 2]  # row numbers from 0


@pytest.mark.parametrize("installed", [("polars", "pyarrow"), ("pyarrow",), ()])
def test_summary_needs_some_data_frames(installed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.reporting.python.find_spec", lambda name: name if name in installed else None)
    model = coterie.cluster([[0.0], [1.0], [9.0], [10.0]], 2)
    if installed:
        assert type(model.summary()).__module__.partition(".")[0] in {installed[0], "pyarrow"}
    else:
        with pytest.raises(MissingExtraError, match="none is installed"):
            model.summary()


def test_noise_is_the_last_row_of_the_summary_and_grey() -> None:
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(150, 2)), rng.normal(size=(100, 2)) + 12.0, [[60.0, -50.0], [-70.0, 40.0]]])
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(day=pd.Timestamp("2024-01-01"), kind="k")
    frame.loc[:149, "day"] = pd.Timestamp("2023-01-01")
    frame.loc[:149, "kind"] = "m"
    model = coterie.cluster(frame, noise=True)
    n_noise = int((model.labels_ < 0).sum())
    assert n_noise >= 2
    last = model.summary().iloc[-1]
    assert (last["cluster"], last["size"], last["features"]) == (-1, n_noise, "noise")
    assert pd.isna([last["membership"], last["typical"], last["mean a"], last["mean day"]]).all()
    assert pd.isna(last["most frequent kind"])
    assert f"{n_noise} rows are noise" in model._repr_html_()
    legend = model.plot(ax=Figure().subplots()).get_legend()
    assert legend is not None
    assert legend.get_texts()[-1].get_text() == "noise"


def test_one_cluster_is_described_too() -> None:
    X = pd.DataFrame({"a": np.random.default_rng(0).normal(size=60), "b": 1.0})
    model = coterie.cluster(X, 1)
    summary = model.summary()
    assert summary["size"].tolist() == [60]
    assert summary["mean a"].tolist() == [pytest.approx(X["a"].mean())]
    assert "1 cluster" in model._repr_html_()
    assert model.score(X) == 0.0
    assert model.plot(ax=Figure().subplots()).get_ylabel() == ""


def test_the_card_is_escaped_and_short(model: Coterie) -> None:
    card = model._repr_html_()
    assert "3 clusters of 90 rows" in card
    assert f"confidence {model.confidence_:.2f}" in card
    assert model._repr_mimebundle_().keys() == {"text/plain", "text/html"}
    with config_context(display="text"):
        assert model._repr_mimebundle_() == {"text/plain": "Coterie(effort='fast', random_state=0)"}
        assert not hasattr(model, "_repr_html_")
    hostile = coterie.cluster(pd.DataFrame({"<script>": [1.0, 2.0, 3.0, 11.0, 12.0]}), 2)._repr_html_()
    assert "high &lt;script&gt;" in hostile
    assert "<script>" not in hostile
    assert "sk-" in Coterie()._repr_html_()  # scikit-learn's diagram
    assert "text/html" in Coterie()._repr_mimebundle_()


def test_the_card_of_many_clusters_and_rows() -> None:
    rng = np.random.default_rng(0)
    X = (np.arange(6000) % 20)[:, None] * 10.0 + rng.normal(size=(6000, 2)) * 0.1
    model = coterie.cluster(X, 20, effort="fast")
    card = model._repr_html_()
    assert "20 clusters of 6,000 rows" in card
    assert "and 8 more clusters" in card
    assert model.plot(ax=Figure().subplots()).get_legend() is None
    _, rows = model.rows_to_show(X, at_most=100)
    assert rows.table.n_rows == 100


def test_report_names_rows_by_index_column_or_number(model: Coterie, frame: pd.DataFrame, tmp_path: Path) -> None:
    assert "C089" in str(model.report())
    named = frame.assign(customer=[f"K{i}" for i in range(90)], kind=customers()[1])
    page = str(model.report(X=named.drop(columns="kind"), ids="customer", title="My <customers>"))
    assert "K89" in page
    assert "<h1>My &lt;customers&gt;</h1>" in page
    assert "K89" in str(coterie.report(model, frame, ids=named["customer"]))
    path = coterie.report(model, named.drop(columns="customer"), tmp_path / "p.html", truth="kind")
    page = Path(path).read_text(encoding="utf-8")
    assert "C089" in page  # the index is kept when a column is set aside
    assert "known classes" in page
    assert str(model.report(ids="plan")) != str(model.report())  # a column of the fit may name the rows as well
    several = frame.set_index([frame.index, np.arange(90)])
    assert "C089, 89" in str(model.report(X=several))
    with pytest.raises(TableError, match=r"'custmer'.*Did you mean 'customer'"):
        model.report(X=named.drop(columns="kind"), ids="custmer")
    with pytest.raises(InputError, match=r"ids has shape \(3,\), but there are 90 rows"):
        model.report(ids=["a", "b", "c"])


def test_a_column_that_identifies_rows_names_them() -> None:
    numbered = customers()[0].reset_index(names="customer")
    model = coterie.cluster(numbered, effort="fast")
    assert model.summary()["typical"].str.fullmatch(r"C\d{3}").all()
    assert "C089" in str(model.report())
    indexed = coterie.cluster(numbered.set_index(np.array([f"row {i}" for i in range(90)])), effort="fast")
    assert indexed.summary()["typical"].str.startswith("row ").all()  # an index was set on purpose


def test_rows_of_texts_keep_their_index() -> None:
    words = {
        0: ["cats purr and dogs bark", "the dog and the cat sleep"],
        1: ["stocks fell sharply", "bonds and stocks"],
    }
    reviews = pd.DataFrame({"review": [words[i % 2][i // 2 % 2] + f" {i}" for i in range(40)]})
    reviews.index = pd.Index([f"R{i}" for i in range(40)])
    model = coterie.cluster(reviews, 2, text="review")
    assert model.summary()["typical"].str.startswith("R").all()
    assert "R39" in str(model.report())
    embedded = Coterie(2, encoder=lambda texts: np.array([[len(text), text.count("s")] for text in texts], float))
    assert embedded.fit(reviews["review"]).summary()["typical"].str.startswith("R").all()


def test_report_of_a_file_names_it() -> None:
    table = read_table(example_path("wine"))
    model = coterie.cluster(example_path("wine"), effort="fast")
    assert "<h1>Clusters of wine.csv</h1>" in str(model.report())
    model = Coterie(random_state=0, effort="fast").fit(read_table(example_path("wine")).select(range(5)))
    page = str(coterie.report(model, table.select(range(6)), truth=table.names[5]))
    assert "known classes" in page


def test_report_is_written_whole_or_not_at_all(model: Coterie, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    model.report(path)
    written = path.read_bytes()
    with pytest.raises(OutputError, match=r"exists already.*force=True"):
        model.report(str(path), title="Other")
    assert path.read_bytes() == written
    assert model.report(path, title="Other", force=True) == path
    assert "<h1>Other</h1>" in path.read_text(encoding="utf-8")
    with pytest.raises(OutputError, match="does not exist"):
        model.report(tmp_path / "none" / "page.html")
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def test_report_of_images_shows_them() -> None:
    rng = np.random.default_rng(0)
    images = rng.random((40, 6, 6)) + np.where(np.arange(40) < 20, 0.0, 4.0)[:, None, None]
    model = coterie.cluster(images, 2)
    assert "data:image/png" in str(model.report())
    assert model.summary().columns.tolist() == ["cluster", "size", "share", "membership", "typical"]
    flat = coterie.cluster(images.reshape(40, 36), 2)
    assert "data:image/png" in str(flat.report(images=(6, 6)))


def test_a_model_that_is_not_fitted_says_so() -> None:
    for call in (Coterie().report, Coterie().summary, Coterie().plot):
        with pytest.raises(ValueError, match="not fitted yet"):
            call()


def test_plot_of_two_columns(model: Coterie, frame: pd.DataFrame) -> None:
    ax = model.plot(ax=Figure().subplots(), columns=("age", "income ($)"))
    offsets = points_of(ax)
    expected = frame[["age", "income ($)"]].dropna().sort_values("age").to_numpy()
    drawn = offsets[~np.isnan(offsets).any(axis=1)]
    np.testing.assert_allclose(drawn[drawn[:, 0].argsort()], expected)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("age", r"income (\$)")  # a dollar sign would start a formula
    assert model.plot(ax=Figure().subplots(), columns=("since", "active")).get_xlabel() == "since"
    with pytest.raises(InputError, match="'plan', which is a category"):
        model.plot(columns=("plan", "age"))
    with pytest.raises(TableError, match=r"'agee'.*Did you mean 'age'"):
        model.plot(columns=("agee", "age"))


def test_plot_opens_a_figure_and_labels_clusters(model: Coterie) -> None:
    ax = model.plot()
    assert ax.figure is plt.gcf()
    assert {text.get_text() for text in ax.texts} == {"0", "1", "2"}
    colours = {tuple(colour) for colour in np.asarray(ax.collections[0].get_facecolor()).tolist()}
    assert len(colours) == 3
    ax.figure.canvas.draw()
    plt.close("all")


def test_plot_names_the_extra_that_is_missing(model: Coterie, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"plot needs matplotlib.*pip install 'coterie\[plot\]'"):
        model.plot()


def test_transform_measures_distances_to_the_means(model: Coterie, frame: pd.DataFrame) -> None:
    distances = model.transform(frame)
    assert (distances.dtype, distances.shape) == (np.dtype("float64"), (90, 3))
    assert adjusted_rand_score(distances.argmin(axis=1), model.labels_) > 0.95
    assert model.get_feature_names_out().tolist() == ["coterie0", "coterie1", "coterie2"]
    np.testing.assert_array_equal(clone(model).fit_transform(frame), distances)


def test_output_as_frames(frame: pd.DataFrame) -> None:
    model = Coterie(3, effort="fast", random_state=0)
    pandas = model.set_output(transform="pandas").fit_transform(frame)
    assert pandas.index.equals(frame.index)
    polars = model.set_output(transform="polars").fit(pl.from_pandas(frame)).transform(pl.from_pandas(frame))
    assert polars.columns == pandas.columns.tolist()
    np.testing.assert_allclose(polars.to_numpy(), pandas.to_numpy())


def test_score_is_the_silhouette_or_the_rand_index(blobs: Any) -> None:
    X, truth = blobs
    model = Coterie(3, effort="fast", random_state=0).fit(X)
    encoded = model.table_.transform(model.rows_to_show()[1].table)
    assert model.score(X) == pytest.approx(silhouette_score(encoded, model.labels_), abs=1e-5)
    assert model.score(X, truth) == 1.0
    assert model.score(X, np.array(["a", "b", "c"])[truth]) == 1.0
    many = np.repeat(X, 20, axis=0)  # a sample of the rows is enough
    assert model.score(many) == pytest.approx(model.score(X), abs=0.05)
    assert model.score(X[:1]) == 0.0


def test_grid_search_and_cross_validation_need_no_scoring(blobs: Any) -> None:
    X, truth = blobs
    search = GridSearchCV(Coterie(effort="fast", random_state=0), {"n_clusters": [2, 3, 5]}, cv=3).fit(X)
    assert search.best_params_ == {"n_clusters": 3}
    assert len(search.best_estimator_.summary()) == 3  # refitted here, so that it has its rows
    search = GridSearchCV(Coterie(effort="fast", random_state=0), {"n_clusters": [2, 3]}, cv=3).fit(X, truth)
    assert search.best_score_ == pytest.approx(1.0)
    assert cross_val_score(Coterie(3, effort="fast", random_state=0), X, cv=3).min() > 0.5


def test_coterie_is_a_step_of_pipelines(frame: pd.DataFrame) -> None:
    kind = customers()[1]
    numbers = frame[["age", "income ($)"]].fillna(3000.0)
    pipeline = Pipeline([("scale", StandardScaler()), ("cluster", Coterie(3, effort="fast", random_state=0))])
    assert pipeline.fit_predict(numbers).shape == (90,)
    assert pipeline.score(numbers, kind) > 0.9
    assert len(pipeline[-1].summary()) == 3
    before = make_pipeline(Coterie(3, effort="fast", random_state=0), LogisticRegression())
    assert before.fit(frame, kind).score(frame, kind) > 0.95
    columns = ColumnTransformer(
        [("c", Coterie(3, effort="fast", random_state=0), ["age", "plan"]), ("n", "passthrough", ["active"])]
    ).set_output(transform="pandas")
    moved = columns.fit_transform(frame)
    assert moved.columns.tolist() == ["c__coterie0", "c__coterie1", "c__coterie2", "n__active"]
    assert moved.index.equals(frame.index)
    union = FeatureUnion([("a", Coterie(2, effort="fast", random_state=0)), ("b", ClAM(2, **_quick_clam()))])
    union.set_output(transform="pandas")
    names = ["a__coterie0", "a__coterie1", "b__clam0", "b__clam1"]
    assert union.fit_transform(numbers).columns.tolist() == names


def _quick_clam() -> dict[str, Any]:
    return {name: value for name, value in FAST["clam"].items() if name != "n_clusters"} | {"random_state": 0}


def test_the_report_of_other_rows_has_no_kernel(of_all_methods: dict[str, Any], blobs: Any) -> None:
    model: AttentionBasedClustering = of_all_methods["attention-based"]
    rows = pd.DataFrame(blobs[0], columns=list("abcd"))
    fitted, other = (model.rows_to_show(X)[0] for X in (rows, rows.iloc[:40]))
    assert fitted is model
    assert other.describe_fit(model.rows_to_show()[1].table).kernel is None
    assert model.kernel_.shape == (150, 150)


def test_a_stream_shows_its_last_batch(blobs: Any) -> None:
    X = blobs[0]
    model = ClAM(3, **_quick_clam()).partial_fit(X[:75])
    model.partial_fit(pd.DataFrame(X[75:], index=np.arange(75, 150)))
    assert model.rows_to_show()[1].table.n_rows == 75
    assert model.summary()["typical"].min() >= 75


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("customers.csv", r"got the name 'customers\.csv' instead.*coterie\.cluster\('customers\.csv'\)"),
        (Path("customers.csv"), r"coterie\.cluster\('customers\.csv'\)"),
        (None, "got None instead. Give an array"),
        ([1.0, 2.0, 3.0], r"got 1D array.*reshape\(-1, 1\)"),
        (["good", "bad"], "list of 2 texts instead.*encoder"),
        ({"age": [1, 2]}, r"got a dict instead.*pandas\.DataFrame\(X\)"),
        ([{"age": 1}, {"age": 2}], r"list of dicts instead.*pandas\.DataFrame\(X\)"),
        (pd.Series([1.0, 2.0]), r"single column instead.*to_frame"),
        (pl.Series([1.0, 2.0]), r"single column instead.*to_frame"),
    ],
)
def test_what_is_no_table_is_named(X: Any, message: str) -> None:
    with pytest.raises(TableError, match=message):
        Coterie().fit(X)


def test_cluster_reads_files_and_takes_parameters(frame: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "customers.csv"
    frame.to_csv(path, index=False)
    for given in (path, str(path)):
        assert coterie.cluster(given, 3, effort="fast").n_clusters_ == 3
    assert coterie.cluster(frame, effort="fast").random_state == 0
    assert coterie.cluster(frame, effort="fast", random_state=7).random_state == 7
    with pytest.raises(TableError, match="none"):
        coterie.cluster(tmp_path / "none.csv")
    with pytest.raises(TypeError, match="n_cluster"):
        coterie.cluster(frame, n_cluster=3)
