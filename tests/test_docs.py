"""What the pages show runs, what they name exists, and what they link to is there."""

import ast
import json
import re
import runpy
import shlex
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

from coterie.__main__ import main

mpl.use("Agg")
_ROOT = Path(__file__).parents[1]
_SOURCE = _ROOT / "src" / "coterie"
_PAGES = [*sorted(_ROOT.glob("*.md")), *sorted(_ROOT.glob("docs/**/*.md"))]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_REFERENCE = re.compile(r"`((?:\w+/)*\w+\.py)::([\w.]+)`")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def _name(path: Path) -> str:
    return str(path.relative_to(_ROOT))


def _blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in _FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]


def _commands(page: Path) -> list[str]:
    """Lines that install and run something, line by line."""
    return "".join(_blocks(page, "sh")).splitlines()


def _with_blocks(language: str, *patterns: str) -> list[Path]:
    pages = [page for pattern in patterns for page in sorted(_ROOT.glob(pattern))]
    return [page for page in pages if _blocks(page, language)]


@pytest.mark.parametrize("page", _with_blocks("sh", "docs/start.md", "docs/train.md", "docs/methods/*.md"), ids=_name)
def test_commands_run(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    _run(page)


def _run(page: Path) -> None:
    """Run what is Coterie's own among a page's commands."""
    for part in [part for line in _commands(page) for part in line.split(" && ")]:
        program, *arguments = shlex.split(part)
        assert program in {"pip", "pytest", "coterie"}
        if program == "coterie":
            assert main(arguments) == 0, part


def test_commands_in_the_readme_print_what_it_shows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    readme = _ROOT / "README.md"
    _run(readme)
    printed, verdict = _apart_from_the_verdict(capsys.readouterr().out)
    shown, verdict_shown = _apart_from_the_verdict(_blocks(readme, "text")[0])
    assert [_NUMBER.sub("#", line) for line in printed] == [_NUMBER.sub("#", line) for line in shown]
    # Another processor may round differently, and other weights of the judge may prefer a similar candidate.
    numbers = [[float(number) for line in lines for number in _NUMBER.findall(line)] for lines in (printed, shown)]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.15)
    form = re.compile(r"confidence 0\.\d\d \(.+\), runner-up: \d+ clusters by .+, 0\.\d\d")
    assert form.fullmatch(verdict)
    assert form.fullmatch(verdict_shown)


def _apart_from_the_verdict(text: str) -> tuple[list[str], str]:
    """Lines without, and then alone, what the judge says: its numbers change with the weights that ship."""
    lines = [line.rstrip() for line in text.splitlines()]
    (verdict,) = (line for line in lines if line.startswith("confidence "))
    return [line for line in lines if line != verdict], verdict


@pytest.mark.parametrize("page", _with_blocks("python", "README.md", "docs/*.md", "docs/methods/*.md"), ids=_name)
def test_python_on_the_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "page.py"
    program.write_text("\n".join(_blocks(page, "python")), encoding="utf-8")
    runpy.run_path(str(program))


@pytest.mark.parametrize("example", sorted(_ROOT.glob("examples/*.py")), ids=_name)
def test_example_is_short_and_runs(
    example: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) < 60
    monkeypatch.chdir(tmp_path)
    takes_steps = "--steps" in example.read_text(encoding="utf-8")
    monkeypatch.setattr("sys.argv", [str(example), *(["--steps", "2"] if takes_steps else [])])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("notebook", sorted(_ROOT.glob("examples/*.ipynb")), ids=_name)
def test_notebook_runs(notebook: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run its cells in one namespace, and show the last value of each as a notebook does."""
    monkeypatch.chdir(tmp_path)
    content = json.loads(notebook.read_text(encoding="utf-8"))
    assert content["nbformat"] == 4
    namespace: dict[str, Any] = {}
    shown = []
    for cell in content["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert (cell["outputs"], cell["execution_count"]) == ([], None), "outputs are stripped"
        program = ast.parse("".join(cell["source"]))
        last = program.body.pop() if isinstance(program.body[-1], ast.Expr) else None
        exec(compile(program, notebook.name, "exec"), namespace)  # noqa: S102  (a file of this repository)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), notebook.name, "eval"), namespace)  # noqa: S307
            shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
    assert all(shown)
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()
    plt.close("all")


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for link in _LINK.findall(text):
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (heading and heading not in _headings(target)):
            broken.append(link)
    assert not broken


def _headings(page: Path) -> set[str]:
    """Return the names that a page's headings are linked to by."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page for page in _PAGES if _REFERENCE.search(page.read_text("utf-8"))], ids=_name)
def test_code_that_a_page_names_exists(page: Path) -> None:
    for file, name in _REFERENCE.findall(page.read_text(encoding="utf-8")):
        assert (_SOURCE / file).is_file(), file
        found: object = import_module(
            ".".join(["coterie", *Path(file).with_suffix("").parts]).removesuffix(".__init__")
        )
        for part in name.split("."):
            found = getattr(found, part)


def test_every_page_is_in_the_index() -> None:
    index = _ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link in _LINK.findall(index.read_text(encoding="utf-8"))}
    missing = [_name(page) for page in _ROOT.glob("docs/**/*.md") if page not in {index, *linked}]
    assert not missing


def test_tree_lists_every_module_and_no_other() -> None:
    page = next(text for text in _blocks(_ROOT / "docs" / "architecture.md", "text") if text.startswith("src/coterie/"))
    listed, folders = set(), [""]
    for line in page.split("benchmarks/")[0].splitlines()[1:]:
        depth, entry = (len(line) - len(line.lstrip())) // 2, line.split()[0]
        folder = folders[depth - 1] + (entry if entry.endswith("/") else "")
        folders[depth:] = [folder]
        listed |= {folder + word for word in line.split() if word.endswith(".py")}
    modules = {str(path.relative_to(_SOURCE)) for path in _SOURCE.rglob("*.py")}
    assert listed == {module for module in modules if not module.endswith("/__init__.py")}


def test_layers_on_the_page_are_those_that_are_checked() -> None:
    contracts = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    assert f"\n{' > '.join(layers)}\n" in (_ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_continuous_integration_does_what_the_readme_and_make_do() -> None:
    script = (_ROOT / ".ci" / "run").read_text(encoding="utf-8")
    cluster_line, test_line = _commands(_ROOT / "README.md")
    assert test_line in script
    assert all(part in script for part in cluster_line.split(" && "))
    makefile = (_ROOT / "Makefile").read_text(encoding="utf-8")
    gates = re.search(r"^lint:\n((?:\t.+\n)+)", makefile, flags=re.MULTILINE)
    assert gates is not None
    assert [line for line in gates[1].split("\n\t") if f"\n{line.strip()}\n" not in script] == []


def test_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (_ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = {name for page in _PAGES for name in re.findall(r"`make (\w+)`", page.read_text(encoding="utf-8"))}
    assert named <= targets
