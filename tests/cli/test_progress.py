"""Progress on terminals and elsewhere."""

import time

import pytest

from coterie.cli.progress import ProgressDisplay
from coterie.progress import Progress, format_seconds


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def train(display: ProgressDisplay, clock: Clock, *, seconds: float) -> None:
    with display.progress("Clustering") as callback:
        for step in range(1, 101):
            clock.now += seconds / 100
            callback(Progress(step, 100, 0.5, seconds * step / 100))


def run_stages(display: ProgressDisplay, clock: Clock, *, seconds: float) -> None:
    with display.progress("Clustering") as callback:
        for stage in ("k-means", "Ward linkage", "HDBSCAN"):
            clock.now += seconds / 3
            callback(Progress(stage=stage))


def test_a_line_every_ten_seconds_outside_of_terminals(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    train(ProgressDisplay(quiet=False), clock, seconds=60.0)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert 4 <= len(lines) <= 6
    assert lines[0] == "Clustering: step 17 of 100, loss 0.5, about 50 s left"
    run_stages(ProgressDisplay(quiet=False), clock, seconds=18.0)
    assert capsys.readouterr() == ("", "Clustering: Ward linkage\n")


def test_no_line_when_fast_or_quiet(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    train(ProgressDisplay(quiet=False), clock, seconds=9.0)
    train(ProgressDisplay(quiet=True), clock, seconds=60.0)
    run_stages(ProgressDisplay(quiet=False), clock, seconds=9.0)
    run_stages(ProgressDisplay(quiet=True), clock, seconds=60.0)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("quiet", [False, True])
def test_bar_on_terminals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, clock: Clock, quiet: bool
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    display = ProgressDisplay(quiet=quiet)
    with display.status("Reading"):
        display.say("note")
    train(display, clock, seconds=60.0)
    run_stages(display, clock, seconds=0.6)
    out, err = capsys.readouterr()
    assert out == ""
    for text in ("Reading", "note", "Clustering: HDBSCAN", "100%"):
        assert (text in err) is not quiet


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (9000, "2.5 h")]
)
def test_format_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
