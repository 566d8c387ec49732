"""The page about the command says what the command does."""

import re
import shlex
from pathlib import Path

import pytest

from coterie.__main__ import main
from coterie.cli import build_app

_PAGE = (Path(__file__).parents[1] / "docs" / "cli.md").read_text(encoding="utf-8")
_HELP = dict(re.findall(r"<!-- help: (.*?) -->\n```text\n(.*?)```\n", _PAGE, flags=re.DOTALL))
_SHELL = "".join(re.findall(r"```sh\n(.*?)```\n", _PAGE, flags=re.DOTALL)).splitlines()


def test_every_command_has_its_help_on_the_page() -> None:
    names = [command.name for command in build_app().registered_commands]
    assert list(_HELP) == ["coterie", *(f"coterie {name}" for name in names)]


@pytest.mark.parametrize("command", _HELP)
def test_help_is_quoted_word_for_word(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command.split()[1:], "--help"]) == 0
    assert _HELP[command] == capsys.readouterr().out, f"quote the output of `{command} --help` in docs/cli.md"


def test_commands_on_the_page_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for line in _SHELL:
        program, *arguments = shlex.split(line)
        assert program == "coterie"
        assert main(arguments) == 0, line
    assert (tmp_path / "predicted.csv").read_bytes() == (tmp_path / "wine_clusters.csv").read_bytes()


def test_what_the_first_line_of_the_readme_prints_is_what_it_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"```text\n(.*?)```\n", readme, flags=re.DOTALL)[0]
    command = re.findall(r"&& (coterie cluster .*)\n", readme)[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(shlex.split(command)[1:]) == 0
    printed = capsys.readouterr().out.replace("wrote wine.html", "")
    assert [line.rstrip() for line in shown.split("\n") if line.strip()] == [
        line.rstrip() for line in printed.split("\n") if line.strip()
    ]
