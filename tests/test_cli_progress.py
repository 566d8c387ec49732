"""What the command says while it works."""

import time

import pytest

from coterie.cli.progress import Narrator
from coterie.progress import Progress, format_seconds


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _train(narrator: Narrator, clock: Clock, *, seconds: float) -> None:
    with narrator.training("Clustering") as on_progress:
        for step in range(1, 101):
            clock.now += seconds / 100
            on_progress(Progress(step, 100, 0.5, seconds * step / 100))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_few_lines_outside_of_terminals(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    _train(Narrator(quiet=False), clock, seconds=60.0)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert 4 <= len(lines) <= 6
    assert lines[0] == "Clustering: 17% done, about 50 s left"


def test_no_line_when_fast_or_quiet(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    _train(Narrator(quiet=False), clock, seconds=9.0)
    _train(Narrator(quiet=True), clock, seconds=60.0)
    assert capsys.readouterr() == ("", "")


def _step(narrator: Narrator, clock: Clock, *, seconds: float) -> None:
    with narrator.steps("Clustering") as on_step:
        for words in ("k-means", "Ward linkage", "HDBSCAN"):
            clock.now += seconds / 3
            on_step(words)


def test_steps_are_seldom_told_outside_of_terminals(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    _step(Narrator(quiet=False), clock, seconds=18.0)
    _step(Narrator(quiet=False), clock, seconds=9.0)
    _step(Narrator(quiet=True), clock, seconds=60.0)
    assert capsys.readouterr() == ("", "Clustering: Ward linkage\n")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("terminal")
def test_bar_on_terminals(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    narrator = Narrator(quiet=False)
    with narrator.phase("Reading"):
        pass
    _train(narrator, clock, seconds=60.0)
    _step(narrator, clock, seconds=0.3)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Reading" in err
    assert "Clustering: HDBSCAN" in err
    assert "Clustering" in err
    assert "100%" in err


@pytest.mark.usefixtures("terminal")
def test_quiet_on_terminals(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    narrator = Narrator(quiet=True)
    with narrator.phase("Reading"):
        narrator.say("note")
    _train(narrator, clock, seconds=60.0)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (9000, "2.5 h")]
)
def test_format_seconds(seconds: float, words: str) -> None:
    assert format_seconds(seconds) == words
