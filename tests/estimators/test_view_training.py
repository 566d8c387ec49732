"""How models that learn from views are trained: the parts of a course, and when clusters are begun."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize

from benchmarks.baselines.cc import CcConfig, CcModel
from benchmarks.baselines.moco import MocoConfig, MocoModel
from coterie.tcc.losses import spread_centres
from coterie.tcc.model import ContrastiveModel, TccConfig, TccModel
from coterie.tcc.schedule import Course, learned

SMALL: dict[str, Any] = {"encoder": "mlp", "channels": 8, "hidden": 8, "width": 8}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def course(**settings: Any) -> Course:
    plain: dict[str, Any] = {
        "batch_size": 20,
        "epoch": 3,
        "steps": 12,
        "warm_up": 0.5,
        "beginnings": 3,
        "learning_rate": 1e-3,
        "views": None,
        "folder": None,
    }
    return Course(**(plain | settings))


def blobs() -> Tensor:
    centres = 5 * torch.randn((3, 6), generator=seeded(1))
    return centres.repeat_interleave(20, dim=0) + torch.randn((60, 6), generator=seeded(2))


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({}, [("rows", 6), ("clusters-1", 2), ("clusters-2", 2), ("clusters-3", 2)]),
        ({"warm_up": 0.0}, [("rows", 0), ("clusters-1", 12)]),
        ({"warm_up": 1.0}, [("rows", 12), ("clusters-1", 0)]),
        (
            {"warm_up": 0.4, "steps": 10, "beginnings": 4},
            [("rows", 4), ("clusters-1", 1), ("clusters-2", 2), ("clusters-3", 1), ("clusters-4", 2)],
        ),
        ({"warm_up": 0.9, "steps": 10}, [("rows", 9), ("clusters-1", 1)]),
    ],
)
def test_parts_are_all_of_the_course(settings: dict[str, Any], parts: list[tuple[str, int]]) -> None:
    one = course(**settings)
    assert sum(steps for _, steps in one.parts()) == one.steps
    assert one.parts() == parts


class Heard:
    """Counts the beginnings of a kind of model, and looks at what it learns from."""

    def __init__(self, patched: pytest.MonkeyPatch, kind: type[ContrastiveModel]) -> None:
        self.beginnings = 0
        self.parts: list[bool] = []
        begin, learn = kind.begin_at, kind.learn_rows_alone

        def begin_at(model: ContrastiveModel, centres: Tensor) -> None:
            self.beginnings += 1
            begin(model, centres)

        def learn_rows_alone(model: ContrastiveModel, alone: bool) -> None:
            self.parts.append(alone)
            learn(model, alone)

        patched.setattr(kind, "begin_at", begin_at)
        patched.setattr(kind, "learn_rows_alone", learn_rows_alone)


def test_clusters_are_begun_after_the_rows_and_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(monkeypatch, TccModel)
    seen: list[int] = []
    model, history = learned(
        TccModel, blobs(), TccConfig(6, 3, **SMALL), course(), seeded(), watch=lambda step, _: seen.append(step)
    )
    assert heard.beginnings == 3
    assert heard.parts == [True, False, False, False]
    assert seen == list(range(1, 13))
    assert len(history["loss"]) == 4
    assert history["empty"]
    assert model.memberships(blobs()).shape == (60, 3)


def test_without_rows_first_prototypes_begin_as_far_apart_as_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(monkeypatch, TccModel)
    still = course(warm_up=0.0, learning_rate=0.0)
    model, _ = learned(TccModel, blobs(), TccConfig(6, 3, **SMALL), still, seeded())
    assert heard.beginnings == 0
    torch.testing.assert_close(normalize(model.online.prototypes, dim=1).detach(), spread_centres(3, 8))


def test_those_that_begin_by_themselves_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(monkeypatch, CcModel)
    learned(CcModel, blobs(), CcConfig(6, 3, **SMALL), course(), seeded())
    assert heard.beginnings == 0
    model = CcModel(CcConfig(6, 3, **SMALL))
    with pytest.raises(NotImplementedError, match="CcModel begins its clusters by itself"):
        ContrastiveModel.begin_at(model, torch.zeros(3, 8))


def test_moco_has_its_clusters_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(monkeypatch, MocoModel)
    model, history = learned(MocoModel, blobs(), MocoConfig(6, 3, **SMALL), course(warm_up=1.0), seeded())
    assert heard.beginnings == 1
    assert history["empty"] == []
    assert len(torch.unique(model.memberships(blobs()).argmax(dim=1))) == 3
