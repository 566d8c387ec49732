"""DAC's pictures, drawn with networks that have learned nothing."""

from pathlib import Path
from typing import Any

import pytest
from torch import Generator

from benchmarks.quality import dac_figures
from benchmarks.quality.dac_sets import mixtures
from benchmarks.quality.dac_suite import WARPED_WEIGHTS
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel
from coterie.nn.model import build


def untrained(_: type[DacModel], weights: str, **changes: Any) -> DacModel:
    density: Any = "flow" if weights == WARPED_WEIGHTS else "gaussian"
    config = DacConfig(2, density=density, width=8, heads=2, inducing=4, max_passes=3, **changes)
    return build(DacModel, config, Generator().manual_seed(0)).eval()


def test_pictures_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dac_figures, "load_model", untrained)
    monkeypatch.setattr(dac_figures, "CELLS", 20)
    assert dac_figures.main(["--folder", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"dac-filtering.png", "dac-mog.png", "dac-warped.png"}


def test_sets_with_few_clusters_are_passed_over() -> None:
    picked = dac_figures.pick(mixtures(100, 4, seed=0, batches=20), 4, least=3)
    assert [one.n_clusters >= 3 for one in picked] == [True] * 4


def test_an_unknown_part_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dac_figures.main(["--only", "none", "--folder", str(tmp_path)]) == 2
    assert "Known are" in capsys.readouterr().err
