"""Training of contrastive models: stages, k-means initialisation of prototypes, and kill -9."""

import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from torch import Generator, Tensor
from torch.nn.functional import normalize

from coterie import TCC
from coterie.checkpoint import load_checkpoint
from coterie.progress import Progress
from coterie.tcc.config import TccConfig
from coterie.tcc.losses import max_mahalanobis_centres
from coterie.tcc.model import TccModel
from coterie.tcc.schedule import Schedule, train_contrastive
from tests.training.toy import in_process, wait_for_step

SMALL: dict[str, Any] = {"encoder": "mlp", "channels": 8, "projection_hidden": 8, "embedding_dim": 8}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def schedule(**settings: Any) -> Schedule:
    defaults: dict[str, Any] = {
        "batch_size": 20,
        "epoch_steps": 3,
        "steps": 12,
        "warm_up": 0.5,
        "restarts": 3,
        "learning_rate": 1e-3,
        "augmentations": None,
        "folder": None,
    }
    return Schedule(**(defaults | settings))


def blobs() -> Tensor:
    centres = 5 * torch.randn((3, 6), generator=seeded(1))
    return centres.repeat_interleave(20, dim=0) + torch.randn((60, 6), generator=seeded(2))


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({}, [6, 2, 2, 2]),
        ({"warm_up": 0.0}, [0, 12]),
        ({"warm_up": 1.0}, [12, 0]),
        ({"warm_up": 0.4, "steps": 10, "restarts": 4}, [4, 1, 2, 1, 2]),
        ({"warm_up": 0.9, "steps": 10}, [9, 1]),
    ],
)
def test_the_stages_are_the_warm_up_and_one_per_restart(settings: dict[str, Any], steps: list[int]) -> None:
    names = ["warm-up", *(f"clusters-{number}" for number in range(1, len(steps)))]
    assert schedule(**settings).stages() == list(zip(names, steps, strict=True))


@pytest.mark.parametrize(("warm_up", "restarts"), [(0.5, 3), (0.0, 0), (1.0, 1)])
def test_prototypes_start_again_at_each_restart(warm_up: float, restarts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    initialised: list[Tensor] = []
    set_prototypes = TccModel.set_prototypes

    def record(model: TccModel, centres: Tensor) -> None:
        initialised.append(centres)
        set_prototypes(model, centres)

    monkeypatch.setattr(TccModel, "set_prototypes", record)
    steps: list[tuple[int, bool]] = []
    model, history = train_contrastive(
        TccModel,
        blobs(),
        TccConfig(6, 3, **SMALL),
        schedule(warm_up=warm_up, learning_rate=0.0),
        seeded(),
        on_step=lambda step, model: steps.append((step, model.cluster_loss_enabled)),
    )
    assert len(initialised) == restarts
    assert steps == [(step, step > 12 * warm_up) for step in range(1, 13)]
    assert len(history["loss"]) == 4
    assert bool(history["empty_clusters"]) == bool(history["imbalance"]) == (warm_up < 1)
    expected = normalize(initialised[-1], dim=1) if initialised else max_mahalanobis_centres(3, 8)
    torch.testing.assert_close(normalize(model.online.prototypes, dim=1).detach(), expected)
    assert model.memberships(blobs()).shape == (60, 3)


FIRST_STEP = {"warm-up": 0, "clusters-1": 24, "clusters-2": 36, "clusters-3": 48}
"""Steps before each stage, of 60; the state is saved after every third step of a stage."""
PAUSE = 0.5
"""Seconds per step once the process is to be killed, so that the signal does not come too late."""


def small_tcc(**parameters: Any) -> TCC:
    small: dict[str, Any] = {"channels": 8, "settings": {"embedding_dim": 16, "projection_hidden": 16}}
    return TCC(3, epochs=20, batch_size=20, restarts=3, warm_up=0.4, random_state=0, **small, **parameters)


def rows() -> np.ndarray[Any, np.dtype[np.float64]]:
    X: np.ndarray[Any, np.dtype[np.float64]] = make_blobs(60, centers=3, n_features=8, random_state=0)[0]
    return X


def fit_slowly(folder: Path, fast_steps: int) -> None:
    """Fit in a process that will be killed; it slows down after some steps."""

    def pause(progress: Progress) -> None:
        if progress.step >= fast_steps:
            time.sleep(PAUSE)

    small_tcc(folder=folder, callback=pause).fit(rows())


def saved_steps(folder: Path) -> int:
    path = folder / "state.safetensors"
    return int(load_checkpoint(path)[1]["step"]) if path.exists() else 0


@pytest.fixture(scope="module")
def uninterrupted() -> TCC:
    return small_tcc().fit(rows())


@pytest.mark.skipif(
    "forkserver" not in multiprocessing.get_all_start_methods(), reason="processes start too slowly here"
)
@pytest.mark.parametrize(("stage", "step"), [("warm-up", 8), ("clusters-1", 2), ("clusters-2", 5)])
def test_a_killed_fit_resumes_to_the_same_result(stage: str, step: int, uninterrupted: TCC, tmp_path: Path) -> None:
    """In one case before the first state of the stage is saved, so that the prototypes are initialised again."""
    folder = tmp_path / "run"
    process = in_process(fit_slowly, folder, FIRST_STEP[stage] + step)
    wait_for_step(step, folder / stage, process)
    process.kill()
    process.join()
    assert process.exitcode == -9
    assert [name for name in FIRST_STEP if (folder / name).exists()][-1] == stage
    saved = saved_steps(folder / stage)
    assert step // 3 * 3 <= saved < 12
    progress: list[Progress] = []
    resumed = small_tcc(folder=folder, callback=progress.append).fit(rows())
    assert (progress[0].step, progress[-1].step) == (FIRST_STEP[stage] + saved + 1, 60)
    expected = uninterrupted.model_.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in resumed.model_.state_dict().items())
    assert resumed.history_ == uninterrupted.history_
    np.testing.assert_array_equal(resumed.probabilities_, uninterrupted.probabilities_)
