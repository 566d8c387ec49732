"""Progress: what callbacks receive and what ``verbose`` prints."""

import pytest

from coterie.progress import Progress, StageProgress, format_seconds, make_callback


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89.4, "89 s"), (90, "2 min"), (3600, "60 min"), (5400, "1.5 h"), (360_000, "100.0 h")],
)
def test_durations_are_formatted_in_seconds_minutes_or_hours(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_the_remaining_time_counts_steps_of_this_run_only() -> None:
    assert Progress(step=5, steps=20, seconds=10.0).seconds_left == 30.0
    assert Progress(step=15, steps=20, seconds=10.0, resumed_at=10).seconds_left == 10.0
    assert Progress(step=20, steps=20, seconds=10.0).seconds_left == 0.0
    assert Progress(step=5, seconds=10.0).seconds_left is None
    assert Progress(step=10, steps=20, seconds=10.0, resumed_at=10).seconds_left is None


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress(), ""),
        (Progress(stage="k-means"), "k-means"),
        (Progress(29, 100, seconds=29.0, stage="k-means"), "29%, k-means, about 71 s left"),
        (Progress(1, 4, 0.25, 2.0), "25%, step 1 of 4, loss 0.25, about 6 s left"),
        (Progress(2000, 2000, 1 / 3, 2.0, stage="training"), "100%, training, step 2,000 of 2,000, loss 0.3333"),
    ],
)
def test_progress_is_formatted_as_one_line(progress: Progress, text: str) -> None:
    assert str(progress) == text


def test_silent_callbacks_are_passed_through() -> None:
    assert make_callback(None, verbose=False, name="ClAM") is None
    assert make_callback(print, verbose=False, name="ClAM") is print


def test_verbose_prints_every_two_seconds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("coterie.progress.time.monotonic", lambda: now)
    seen: list[Progress] = []
    callback = make_callback(seen.append, verbose=True, name="ClAM")
    assert callback is not None
    for step in range(1, 8):
        callback(Progress(step, 7))
        now += 0.75
    assert len(seen) == 7
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "ClAM: 14%, step 1 of 7",
        "ClAM: 57%, step 4 of 7",
        "ClAM: 100%, step 7 of 7",
    ]
    make_callback(None, verbose=True, name="TCC")(Progress(stage="start"))  # type: ignore[misc]  # not None
    assert capsys.readouterr().err == "TCC: start\n"


def test_stages_are_steps_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("coterie.progress.time.monotonic", lambda: now)
    seen: list[Progress] = []
    stages = StageProgress(seen.append)
    stages.begin("encoding", steps=1.0)
    stages.expect(3.0)
    stages.expect(50.0)  # the total stays, so that progress never goes back
    for stage in ("k-means", "HDBSCAN"):
        now += 2.0
        stages.begin("candidates", stage)
    stages.begin("assignment", steps=2.0)
    stages.begin("assignment")
    assert [(each.phase, each.stage) for each in seen[:2]] == [("encoding", "encoding"), ("candidates", "k-means")]
    assert [each.fraction for each in seen] == [None, 0.25, 0.5, 0.75, 1.0]
    assert [each.seconds_left for each in seen[:3]] == [None, 6.0, 4.0]
    StageProgress(None).begin("encoding")
