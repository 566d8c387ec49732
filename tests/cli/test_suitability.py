"""Warnings before a fit that takes long or makes little sense, and the stop before one that takes far too long."""

from dataclasses import replace

import numpy as np
import pytest

from coterie import DAC
from coterie.cli import suitability
from coterie.cli.progress import ProgressDisplay
from coterie.errors import InputError
from coterie.methods import Limits, get_method, get_methods
from coterie.tables.table import as_table
from tests.cli.conftest import Command, stop_fit


def test_a_fit_that_takes_far_too_long_needs_a_confirmation(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("large.npy", np.zeros((400_000, 2), dtype=np.float32))
    stopped = command("cluster", "large.npy", "--method", "dac", code=2)
    assert "The method dac on 400,000 rows may take 13 min. Use --method coterie, or a sample of" in stopped.err
    fitted = stop_fit(monkeypatch, DAC)
    started = command("cluster", "large.npy", "--method", "dac", "--anyway", code=130)
    assert started.err == (
        "warning: the method dac on 400,000 rows may take 13 min. Use --method coterie for a result in seconds.\n"
    )
    assert len(fitted) == 1


def test_pixels_for_weights_of_the_plane(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("images.npy", np.zeros((20, 8, 8)))
    stop_fit(monkeypatch, DAC)
    warning = "are for 2 features, so that the 64 pixels of each image are replaced by 2 principal components"
    assert warning in command("cluster", "images.npy", "--method", "dac", code=130).err
    assert warning in command("cluster", "images.npy", "--method", "dac", "--weights", "dac-mog2d-v2", code=130).err
    np.save("few.npy", np.zeros((20, 8)))
    assert command("cluster", "few.npy", "--method", "dac", code=130).err == ""


def test_memory_and_recipes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(suitability, "_total_memory", lambda: 8e9)
    table, display = as_table(np.zeros((500_000, 2))), ProgressDisplay(quiet=False)
    method = replace(get_method("dac"), limits=Limits(bytes_per_row=4e4))
    with pytest.raises(InputError, match="needs about 20 GB of memory"):
        suitability.check_suitable(method, table, {}, display, anyway=False)
    suitability.check_suitable(method, table, {}, display, anyway=True)
    suitability.check_suitable(method, table, {"recipe": "mine.toml"}, display, anyway=False)
    assert capsys.readouterr() == ("", "")


def test_the_memory_of_the_machine_may_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert suitability._total_memory() > 1e8
    monkeypatch.delattr("os.sysconf")
    assert suitability._total_memory() == float("inf")


def test_small_data_suit_all_methods(capsys: pytest.CaptureFixture[str]) -> None:
    table, display = as_table(np.zeros((5_000, 8))), ProgressDisplay(quiet=False)
    for method in get_methods():
        suitability.check_suitable(method, table, {}, display, anyway=False)
    assert capsys.readouterr() == ("", "")
