"""Progress on terminals and elsewhere."""

import time

import pytest

from coterie.cli import progress
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


def test_lines_outside_of_terminals(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.01)
    with ProgressDisplay(quiet=False).progress("Clustering") as callback:
        wait_for_line(capsys, "Clustering: 0 s so far\n")
        callback(Progress(1, 10, seconds=20.0, stage="k-means", phase="candidates"))
        wait_for_line(capsys, "Clustering: 10%, k-means, about 3 min left,")
        callback(Progress(17, 100, 0.5, 10.2))
        wait_for_line(capsys, "Clustering: 17%, step 17 of 100, loss 0.5, about 50 s left,")
    capsys.readouterr()
    time.sleep(0.05)
    assert capsys.readouterr() == ("", ""), "lines end with the activity"


def wait_for_line(capsys: pytest.CaptureFixture[str], line: str) -> None:
    """Wait until a line, or the start of one, is printed to the standard error."""
    for _ in range(500):
        out, err = capsys.readouterr()
        assert out == ""
        if line in err:
            return
        time.sleep(0.01)
    pytest.fail(f"{line!r} was not printed")


def test_no_line_when_fast_or_quiet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with ProgressDisplay(quiet=False).progress("Clustering") as callback:
        callback(Progress(stage="k-means"))
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.01)
    with ProgressDisplay(quiet=True).progress("Clustering") as callback:
        callback(Progress(stage="k-means"))
        time.sleep(0.05)
    assert capsys.readouterr() == ("", "")


def test_profile_is_the_time_of_each_phase(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(time, "perf_counter", clock)
    display = ProgressDisplay(quiet=True, profile=True)
    with display.status("Reading", "reading"):
        clock.now += 1.0
    clock.now += 0.5
    with display.progress("Clustering", "clustering") as callback:
        clock.now += 0.25
        for stage in ("k-means", "HDBSCAN"):
            callback(Progress(stage=stage, phase="candidates"))
            clock.now += 3.0
        callback(Progress(stage="assignment of 9 rows", phase="assignment"))
        clock.now += 2.25
    display.show_profile()
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split() for line in err.splitlines() if line.strip()][2:] == [
        ["reading", "1.00", "10%"],
        ["clustering", "0.25", "2%"],
        ["candidates", "6.00", "60%"],
        ["assignment", "2.25", "22%"],
        ["other", "0.50", "5%"],
        ["total", "10.00", "100%"],
    ]


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
