"""Results pages: up to date with the results files, and each kind of block on small files."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.render import main, pages
from benchmarks.render.blocks import KINDS, Block, calibration_bins, calibration_error
from benchmarks.render.cells import Cell
from benchmarks.render.source import Sample, Source, flatten, matches, measure
from benchmarks.render.stored import digest
from coterie.errors import InputError

COMMON = """
[files]
"runs.jsonl" = { unit = ["data"], newest = ["method", "data", "seed"] }
[columns]
ari = ["ARI", "{ari:mean2}", { best = "max" }]
[names]
ours = "Ours"
theirs = "Theirs"
third = "A third"
"""
PUBLISHED = "[table]\nours = { ari = 0.95, ari_error = 0.01 }\nonly = { ari = 0.5 }\nlisted = { k = [3, 4] }\n"


def run(method: str, data: str, ari: float, seed: int = 0, **fields: Any) -> dict[str, Any]:
    """One line of a results file."""
    metrics = {"ari": ari, "n_clusters": 3}
    return {"method": method, "data": data, "seed": seed, "k": 3, "seconds": 2.0, "metrics": metrics, **fields}


RUNS = [
    run("ours", "a/one", 0.1, seed=1),  # repeated below
    run("ours", "a/one", 0.8, seed=0),
    run("ours", "a/one", 0.6, seed=1),
    run("ours", "a/two", 0.9),
    run("theirs", "a/one", 0.75, seconds=1.0),
    run("theirs", "a/two", 0.5, seconds=1.0),
    run("third", "a/one", 0.2),
    run("third", "a/two", 0.0) | {"metrics": {}, "note": "more than 120 s"},
]


@pytest.fixture
def block(tmp_path: Path) -> Callable[..., str]:
    """Render a block of a file with these runs."""
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in RUNS), encoding="utf-8")
    (tmp_path / "common.toml").write_text(COMMON, encoding="utf-8")
    (tmp_path / "paper.toml").write_text(PUBLISHED, encoding="utf-8")
    source = Source(tmp_path, tmp_path, tmp_path)

    def render(**spec: Any) -> str:
        one = Block(source, **{"file": "runs.jsonl", **spec})
        return KINDS[one.kind](one)

    return render


def cells(table: str) -> list[list[str]]:
    """Split a Markdown table, without its rule."""
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    return [rows[0], *rows[2:]]


def test_pages_are_what_the_results_files_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_check_names_pages_that_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pages, "render_all", lambda _: {"new.md": "1\n", "same.md": "2\n"})
    (tmp_path / "same.md").write_text("2\n", encoding="utf-8")
    (tmp_path / "old.md").write_text("3\n", encoding="utf-8")
    folder = ["--out", str(tmp_path)]
    assert main([*folder, "--check"]) == 1
    assert re.findall(r"(\w+)\.md", capsys.readouterr().err) == ["new", "old"]
    assert (main(folder), main([*folder, "--check"])) == (0, 0)
    assert {path.name for path in tmp_path.iterdir()} == {"new.md", "same.md"}


def test_the_overview_is_short_and_links_lead_somewhere() -> None:
    assert len((pages.OUTPUT / "index.md").read_text(encoding="utf-8").splitlines()) < 80
    for page in pages.OUTPUT.glob("*.md"):
        targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        assert all((page.parent / target).exists() for target in targets), page
        assert page.stem != "index" or {"coterie.md", "clam.md", "dac.md", "abc.md", "amcp.md", "tcc.md"} <= {*targets}


def test_prose_holds_figures_of_the_files(tmp_path: Path, block: Callable[..., str]) -> None:
    assert block(columns=["ari"])
    page = """
title = "Page"
[[section]]
title = "Section"
text = "Ours reaches {ours}."
values.ours = { file = "runs.jsonl", where = { method = "ours" }, cell = "{ari:max1}" }
[[section.block]]
text = "Before the table {ours}:"
file = "runs.jsonl"
head = "method"
columns = ["ari"]
"""
    (tmp_path / "page.toml").write_text(page, encoding="utf-8")
    text = pages.render_page("page", Source(tmp_path, tmp_path, tmp_path))
    assert "Ours reaches .9." in text
    assert "Before the table .9:\n\n| method | ARI |" in text


def test_lines_are_flattened() -> None:
    line = flatten(
        {"settings": {"rule": "loss"}, "metrics": {"ari": 0.5, "set": {"k": 2}}, "course": [[1, 0.5], [2, 0.6]]}
    )
    assert (line["settings.rule"], line["ari"], line["set.k"], line["course.2.1"]) == ("loss", 0.5, 2, 2)


@pytest.mark.parametrize(
    ("where", "is_match"),
    [
        ({"n": 5}, True),
        ({"n": [4, 5]}, True),
        ({"n": {"min": 6}}, False),
        ({"n": {"min": 5, "max": 5}}, True),
        ({"data": {"prefix": "sipu/"}}, True),
        ({"absent": {"max": 1}}, False),
    ],
)
def test_lines_are_selected(where: Mapping[str, Any], is_match: bool) -> None:
    assert matches({"n": 5, "data": "sipu/a"}, where) is is_match


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("a", [1.0, 4.0]),
        ("a - b", [-1.0, 2.0]),
        ("|a - b|", [1.0, 2.0]),
        ("a / 2", [0.5, 2.0]),
        ("k = n", [1.0]),
        ("k ~ n", [1.0]),
        ("a ~ b", [0.0, 0.0]),
        ("a ~ 1.5", [1.0, 0.0]),
        ("max(k, m)", [9.0]),
        ("absent", []),
        ("absent - a", []),
    ],
)
def test_measures_are_evaluated(expression: str, values: list[float]) -> None:
    line = {"a": [1.0, 4.0], "b": [2.0, 2.0], "k": 3, "n": 3, "m": 9}
    assert list(measure(line, expression).values()) == values


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{x:se2}", ".50 ± .50"),
        ("{x:median1} of {x:n}", ".5 of 2"),
        ("{x:each1}", ".0, 1.0"),
        ("{x:mean.2}", "0.50"),
        ("{x:percent}", "50 %"),
        ("{x:gain2}", "**-1.50 ± .50**"),
        ("{x:diff2}", "-1.50 ± .50"),
        ("{x:lack2}", "1.50 ± .50"),
        ("{x:pairs}", "2"),
        ("{x:p.3}", "0.205"),
        ("{x:ratio}", "0.25"),
        ("{x:mean1}{x:pub2}", ".5 / .70"),
        ("{x:printed2}", ".70 ± .01"),
        ("{x:mean1}{x:cover}", ".5 (2 of 3)"),
        ("{x:mean1}, {y:mean1}", ".5, –"),
        ("{y:mean1}", None),
    ],
)
def test_templates_are_filled(template: str, text: str | None) -> None:
    sample, over = Sample([{"x": [0.0, 1.0]}]), Sample([{"x": [1.0, 3.0]}])
    published = {"x": 0.7, "x_error": 0.01}.get
    assert Cell(sample, over, Sample([{"x": [0.0, 1.0, 2.0]}]), published).fill(template) == text


def test_unknown_statistics_and_missing_comparisons_are_errors() -> None:
    cell = Cell(Sample([{"x": 1.0}]))
    with pytest.raises(InputError, match="'mode' is not a statistic"):
        cell.fill("{x:mode2}")
    with pytest.raises(InputError, match="nothing to be compared with"):
        cell.fill("{x:gain2}")


def test_tables_average_seeds_first_and_mark_the_best(block: Callable[..., str]) -> None:
    columns = ["ari", ["seconds", "{seconds:ratio}", {"over": {"method": "theirs"}}], ["sets", "{ari:n}{ari:cover}"]]
    assert cells(block(head="method", columns=columns)) == [
        ["method", "ARI", "seconds", "sets"],
        ["Ours", "**.80**", "2.00", "2"],  # (0.8 + 0.6) / 2 and 0.9
        ["Theirs", ".62", "1.00", "2"],
        ["A third", ".20", "2.00", "1 (1 of 2)"],
    ]


def test_tables_repeat_across_groups_and_substitute_variables(block: Callable[..., str]) -> None:
    text = block(
        each=[{"title": "Largest", "_cell": "{ari:max1}"}, {"title": "Smallest", "_cell": "{ari:min1}"}],
        across=[{"title": "one", "data": "a/one"}, {"title": "two", "data": "a/two"}],
        rows=["ours", {"title": "less theirs", "method": "ours", "_reference": True, "_omit": ["two"]}],
        columns=[["", "$cell"]],
    )
    first, second = text.split("\n\n**Smallest**\n\n")
    assert first.startswith("**Largest**")
    assert "| Ours | .7 | .9 |" in second
    assert "| less theirs | .7 | – |" in second


def test_rows_may_be_sorted_compared_and_must_match(block: Callable[..., str]) -> None:
    assert [row[0] for row in cells(block(rows="sorted", columns=["ari"]))[1:]] == ["Ours", "Theirs", "A third"]
    rows = [{"title": "difference", "method": "ours", "_less": "theirs"}]
    assert "| difference | +.175 ± .225 |" in block(rows=rows, over={"method": "$less"}, columns=[["", "{ari:gain3}"]])
    with pytest.raises(InputError, match=r"matches .*'method': 'absent'"):
        block(rows=["ours", "absent"], columns=["ari"])


def test_unfinished_runs_are_explained(block: Callable[..., str]) -> None:
    assert block(kind="unfinished") == "- A third, more than 120 s: two"
    assert "| A third | more than 120 s |" in block(
        where={"data": "a/two"}, rows=["ours", "third"], columns=["ari"], notes=True
    )


def test_only_common_units_are_compared_and_published_values_stand_beside(block: Callable[..., str]) -> None:
    table = block(common=["seed", "method"], columns=[["sum", "{ari:sum2}"]])
    assert cells(table)[1] == ["Ours", "1.70"]  # not the run with seed 1
    rows = ["ours", "theirs", {"title": "printed only", "method": "none", "_as": "only"}]
    table = block(rows=rows, published="paper:table.$as.$metric", columns=[["ARI", "{ari:mean2}{ari:pub2}"]])
    assert [row[1] for row in cells(table)[1:]] == [".80 / .95", ".62", "– / .50"]


def test_claims_are_checked(block: Callable[..., str]) -> None:
    items = [
        ["ARI at least .8", "{ari:mean2}", "at least", 0.8, {"method": "ours"}],
        ["above theirs by more than .2", "{ari:diff2}", "above", 0.2, {"method": "ours", "over": {"method": "theirs"}}],
    ]
    first, second = block(kind="claims", items=items).splitlines()
    assert first == "- ARI at least .8: reached (.80)"
    assert second == "- above theirs by more than .2: **not reached** (+.17 ± .23)"


def test_wins_are_counted(block: Callable[..., str]) -> None:
    ours = {"method": "ours", "over": {"method": "theirs"}}
    published = {"method": "ours", "over": "published", "named": False}
    items = [["above theirs", "{ari:mean2}", ours], ["above published", "{ari:mean2}", published]]
    found = block(kind="wins", row="data", rows=["a/one", "a/two"], published="paper:table.$as.$metric", items=items)
    assert found.splitlines() == ["- above theirs on 1 of 2 (two)", "- above published on 0 of 2"]


def test_headlines_tell_wins_from_losses(block: Callable[..., str]) -> None:
    shared = {"what": "", "task": "", "file": "runs.jsonl", "where": {}, "cell": "{ari:mean2}", "published": "–"}
    items = [
        {**shared, "method": "win", "ours": {"method": "ours"}, "peer_name": "third", "peer": {"method": "third"}},
        {**shared, "method": "loss", "ours": {"method": "third"}, "peer_name": "ours", "peer": {"method": "ours"}},
        {**shared, "method": "even", "ours": {"method": "ours"}, "peer_name": "ours", "peer": {"method": "ours"}},
    ]
    rows = cells(block(kind="headlines", head=list("1234567"), items=items))[1:]
    assert [row[-1] for row in rows] == ["win", "**loss**", "even"]
    assert rows[0][-2] == "third .20"


def test_growth_is_an_exponent(tmp_path: Path, block: Callable[..., str]) -> None:
    timed = [{"method": "m", "n": n, "seconds": seconds} for n, seconds in ((10, 1.0), (20, 3.0), (40, 16.0))]
    (tmp_path / "timed.jsonl").write_text("".join(json.dumps(each) + "\n" for each in timed), encoding="utf-8")
    across = [{"title": "m", "method": "m"}]
    spec = {"file": "timed.jsonl", "row": "n", "rows": [10, 20, 40], "across": across}
    assert block(kind="growth", columns=[["", "{seconds:mean.0}"]], **spec).endswith("| 40 | 16 |\n| exponent | 2.00 |")


def test_calibration_is_measured_in_bins() -> None:
    predicted, true = [0.05, 0.07, 0.95, 1.0], [0.0, 0.2, 1.0, 1.0]
    low, high = calibration_bins(predicted, true)
    assert (low.n_sets, low.low, high.high) == (2, 0.0, 1.0)
    assert low.error == pytest.approx(0.1)
    assert calibration_error(predicted, true) == pytest.approx((2 * 0.04 + 2 * 0.025) / 4)


def test_stored_methods_have_all_data_sets_and_count_by_their_best_reference() -> None:
    keys = ("battery", "dataset", "method", "ARI", "NMI")
    table = ["fcps a m .2 .1", "fcps a m .8 .7", "fcps b m .4 .3", "fcps a half 1 1", "fcps gone m 0 0"]
    runs = [{"data": "fcps/a", "n": 10}, {"data": "fcps/b", "n": 20}]
    found = digest((dict(zip(keys, row.split(), strict=True)) for row in table), runs)
    assert found["fcps"] == [{"method": "m", "sets": 2, "ari": 0.6, "nmi": 0.5}]
