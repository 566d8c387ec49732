"""The verdict in all regimes, and that the rest of the page agrees with it."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from coterie import Coterie
from coterie.base import Selection
from coterie.judged.estimator import LOW_CONFIDENCE
from coterie.reporting.page import render_report
from coterie.reporting.verdict import Evidence, Verdict, agreement_of_others, judge_result, level_of
from coterie.tables.table import as_table
from tests.reporting.pages import KMeansClusterer, Structure, page_of, wine


def candidate(n_clusters: int, score: float) -> dict[str, Any]:
    return {"algorithm": "k-means", "columns": "raw", "n_clusters": n_clusters, "score": score}


def selection_of(confidence: float, *, single: bool = False, **more: Any) -> Selection:
    chosen = candidate(3, confidence)
    given: dict[str, Any] = {"candidates": [chosen], "levels": [chosen], "runner_up": None} | more
    return Selection(
        confidence=confidence,
        chosen=None if single else chosen,
        shortlist=lambda _: [],
        alternative=lambda _, X: np.zeros(len(X), dtype=np.int64),
        **given,
    )


def verdict_of(
    confidence: float | None, right: float = 0.9, *, selection: Selection | None = None, **more: Any
) -> Verdict:
    given: dict[str, Any] = {"n_rows": 100, "n_clusters": 4, "n_outliers": 0, "noun": "row"} | more
    if selection is None and confidence is not None:
        selection = selection_of(confidence)
    return judge_result(Evidence(selection=selection, expected_right=right, **given))


@pytest.mark.parametrize(
    ("confidence", "level", "headline"),
    [
        (1.0, "high", "High confidence"),
        (0.75, "high", "High confidence"),
        (0.74, "moderate", "Moderate confidence"),
        (0.5, "moderate", "Moderate confidence"),
        (0.49, "limited", "Limited confidence"),
        (0.25, "limited", "Limited confidence"),
        (0.24, "low", "Low confidence"),
        (0.0, "low", "Low confidence"),
    ],
)
def test_levels_of_confidence(confidence: float, level: str, headline: str) -> None:
    verdict = verdict_of(confidence)
    assert (verdict.level, verdict.headline) == (level, headline)
    assert verdict.is_warning == (level == "low")
    assert "About 90% of the rows are expected to be in the right cluster" in verdict.sentence
    assert ("random cluster" in verdict.sentence) == (level == "low")
    assert any("no clusters" in remark for remark in verdict.remarks) == (level == "low")


def test_low_means_the_same_as_in_the_notes() -> None:
    assert selection_of(0.5).low_confidence == LOW_CONFIDENCE
    assert level_of(LOW_CONFIDENCE - 1e-9, (), LOW_CONFIDENCE) == "low"
    assert level_of(0.3, (), 0.4) == "low"


def test_subsamples_that_disagree_lower_the_level_but_not_to_low() -> None:
    levels = [level_of(0.9, agreement, 0.25) for agreement in ((), (1.0,), (1.0, 0.9), (1.0, 0.6, 0.7), (0.1, 1.0))]
    assert levels == ["high", "high", "high", "moderate", "limited"]
    assert agreement_of_others((0.5, 1.0, 0.7)) == pytest.approx(0.6)
    verdict = verdict_of(None, selection=selection_of(0.9, agreement=(1.0, 0.55)))
    assert verdict.headline == "Moderate confidence"
    assert "their adjusted Rand index with these is 0.55" in verdict.remarks[0]


def test_nearly_certain_results_say_so() -> None:
    assert "More than 99% of the rows" in verdict_of(0.99, 0.997).sentence


def test_a_different_clustering_that_is_nearly_as_good_is_named() -> None:
    close = selection_of(0.8, runner_up=candidate(5, 0.78))
    assert verdict_of(None, selection=close).remarks == (
        "A different clustering is nearly as good: 5 clusters by k-means, with a score of 0.78.",
    )
    assert verdict_of(None, selection=selection_of(0.8, runner_up=candidate(5, 0.6))).remarks == ()


def test_what_was_asked_for_may_lead_away_from_the_best() -> None:
    led = selection_of(0.1, candidates=[candidate(7, 0.8), candidate(3, 0.1)])
    remarks = verdict_of(None, selection=led).remarks
    assert len(remarks) == 1
    assert "led away from the best candidate, which has 7 clusters and a score of 0.80" in remarks[0]


def test_one_cluster() -> None:
    found = verdict_of(None, selection=selection_of(0.98, single=True), n_clusters=1)
    assert found.headline == "No separate groups were found"
    assert found.sentence == "The probability that all rows form one cluster is 98%."
    assert verdict_of(None, selection=selection_of(0.6, single=True)).headline == "Probably no separate groups"
    asked = verdict_of(None, n_clusters=1, one_requested=True)
    assert (asked.level, asked.headline, asked.sentence) == ("none", "", "One cluster was asked for.")
    assert verdict_of(None, n_clusters=1).sentence == "All rows are in one cluster."


def test_methods_without_a_judge_claim_nothing() -> None:
    verdict = verdict_of(None, 1.0)
    assert (verdict.level, verdict.headline, verdict.remarks) == ("none", "", ())
    assert "does not estimate" in verdict.sentence


def test_noise_and_known_classes_are_remarked_on() -> None:
    assert verdict_of(0.9, n_outliers=50).remarks == ()
    assert verdict_of(0.9, n_outliers=51).remarks == ("More than half of the rows are outliers, in no cluster.",)
    words = [verdict_of(0.9, truth_index=index).remarks[0] for index in (0.9, 0.6, 0.3, 0.1, -0.05)]
    assert [text.split(" the known")[0].removeprefix("The clusters ") for text in words] == [
        *("closely match", "largely match", "partly match"),
        *("do not match", "do not match"),
    ]
    assert words[-1].endswith("is −0.05.")


# The whole page


def verdict_on(page: str) -> str:
    text = Structure(page).text
    return text[: text.index("Source:")]


def test_many_columns_do_not_make_certain_clusters_overlap() -> None:
    X, _ = make_blobs(300, centers=4, n_features=80, cluster_std=6.0, random_state=0)
    table = as_table(X)
    model = Coterie(random_state=0, effort="fast").fit(table)
    page = render_report(model, table, title="", source="")
    assert model.confidence_ > 0.75
    assert "High confidence." in verdict_on(page)
    assert "overlap" not in verdict_on(page)
    assert "silhouette" not in verdict_on(page).lower()
    assert "<summary>Silhouettes: 0." in page


def test_low_confidence_is_said_once() -> None:
    table = as_table(np.random.default_rng(0).normal(size=(200, 5)))
    model = Coterie(n_clusters=5, random_state=0, effort="fast").fit(table)
    assert model.confidence_ < LOW_CONFIDENCE
    assert any(note.startswith("Low confidence: ") for note in model.notes_)
    text = Structure(render_report(model, table, title="", source="")).text
    assert text.count("Low confidence") == 1
    assert text.count("There may be no clusters") == 1
    assert "High confidence" not in text


def test_a_single_cluster_is_said_once() -> None:
    table = as_table(np.random.default_rng(0).normal(size=(300, 5)))
    model = Coterie(random_state=0, effort="fast").fit(table)
    assert model.n_clusters_ == 1
    page = render_report(model, table, title="", source="")
    assert "No separate groups were found" in verdict_on(page)
    assert "no separation was found" not in page
    assert "expected right" not in page
    one = KMeansClusterer(1).fit(wine())
    assert "One cluster was asked for." in verdict_on(render_report(one, wine(), title="", source=""))


def test_agreement_of_subsamples_reaches_the_verdict() -> None:
    X, _ = make_blobs(4_000, centers=3, n_features=4, random_state=1)
    table = as_table(X)
    model = Coterie(random_state=0).fit(table)
    selection = model.describe_fit(table).selection
    assert selection is not None
    assert len(selection.agreement) == 2
    assert max(selection.agreement) == 1.0


def test_methods_without_a_judge_have_no_confidence_on_the_page() -> None:
    page = page_of(wine(), 3)
    assert "does not estimate how close" in verdict_on(page)
    text = Structure(page).text
    assert "confidence" not in text
    assert "expected right" not in text
    assert "as the method computes it" in text
