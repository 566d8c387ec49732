"""Tasks from files of images and of embeddings, as recipes ask for them."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator

from benchmarks.data.tasks import EmbeddingTasks, OmniglotTasks, VectorTasks, select_names
from coterie.amortized.tasks.classes import Instances
from coterie.config import from_dict
from coterie.errors import ConfigError, InputError
from coterie.nn.model import TaskSampler
from coterie.recipes import TASKS

needs_data = pytest.mark.skipif(
    not os.environ.get("COTERIE_DATA"), reason="COTERIE_DATA, the folder of benchmark data, is not set"
)
SMALL: dict[str, Any] = {"points": (8, 8), "clusters": (2, 3)}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def sampler(kind: str, **settings: Any) -> TaskSampler:
    """As a recipe makes it."""
    made: Any = TASKS[kind]
    result: TaskSampler = from_dict(made, settings)
    return result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three alphabets of three characters of five drawings, embeddings of four classes; bytes say which is which."""
    character = np.repeat(np.arange(9), 5)
    np.savez(
        tmp_path / "omniglot28.npz",
        images=np.broadcast_to((10 * character + 10).astype(np.uint8)[:, None, None], (45, 28, 28)),
        character=character,
        char_in_alphabet=character % 3 + 1,
        alphabet=character // 3,
        split=(character // 3 == 2).astype(np.uint8),
        alphabet_names=np.array(["Greek", "Latin", "Tengwar"]),
    )
    y = np.repeat(np.arange(4), 6).astype(np.uint8)
    np.savez(tmp_path / "emb_lite0_cifar100_test.npz", Xq=np.stack([y, 2 * y], 1), scale=np.float32(0.5), y=y)
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("settings", "characters"),
    [
        ({}, {0, 1, 2, 3, 4, 5}),
        ({"part": "evaluation"}, {6, 7, 8}),
        ({"only": ["Latin"]}, {3, 4, 5}),
        ({"without": ["Latin"]}, {0, 1, 2}),
    ],
)
def test_only_requested_alphabets_are_sampled(settings: dict[str, Any], characters: set[int]) -> None:
    batch = sampler("omniglot", **SMALL, **settings).sample(30, seeded())
    assert batch.x.shape == (30, 8, 784)
    shown = (batch.x[..., 0] * 255 / 10).round().long() - 1
    assert set(shown.flatten().tolist()) == characters
    for one, labels in zip(shown, batch.labels, strict=True):
        assert len(set((one // 3).tolist())) == 1
        assert torch.equal(one.unsqueeze(0) == one.unsqueeze(1), labels.unsqueeze(0) == labels.unsqueeze(1))


@pytest.mark.usefixtures("folder")
def test_only_requested_classes_of_embeddings_are_sampled() -> None:
    batch = sampler("embedded-images", source="cifar100-test", without=[1], **SMALL).sample(30, seeded())
    assert batch.x.shape == (30, 8, 2)
    torch.testing.assert_close(batch.x[..., 1], 2 * batch.x[..., 0])
    shown = (batch.x[..., 0] / 0.5).long()
    assert set(shown.flatten().tolist()) == {0, 2, 3}
    same = shown.unsqueeze(1) == shown.unsqueeze(2)
    assert torch.equal(same, batch.labels.unsqueeze(1) == batch.labels.unsqueeze(2))
    only = sampler("embedded-images", source="cifar100-test", only=[1, 3], **SMALL).sample(30, seeded())
    assert set((only.x[..., 0] / 0.5).flatten().tolist()) == {1, 3}


def test_files_are_read_when_first_sampled_and_once(folder: Path) -> None:
    tasks = sampler("omniglot", **SMALL)
    first = tasks.sample(2, seeded())
    (folder / "omniglot28.npz").unlink()
    assert torch.equal(tasks.sample(2, seeded()).x, first.x)
    fresh = sampler("omniglot", **SMALL)
    with pytest.raises(InputError, match=r"no omniglot28.npz in COTERIE_DATA"):
        fresh.sample(2, seeded())


@pytest.mark.usefixtures("folder")
def test_unknown_names_are_rejected_and_known_ones_listed() -> None:
    with pytest.raises(ConfigError, match="'Tengwar' is not one of: Greek, Latin"):
        OmniglotTasks(without=("Tengwar",), points=(8, 8), clusters=(2, 3)).sample(1, seeded())
    with pytest.raises(ConfigError, match="7 is not one of: 0, 1, 2, 3"):
        EmbeddingTasks("cifar100-test", only=(7,), points=(8, 8), clusters=(2, 3)).sample(1, seeded())


def test_settings_are_checked_before_files_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    wrong: list[tuple[str, str, Any]] = [
        ("omniglot", "points", [9, 8]),
        ("omniglot", "max_degrees", -1.0),
        ("omniglot", "part", "test"),
        ("omniglot", "only", "Latin"),
        ("embedded-images", "clusters", [3, 2]),
        ("embedded-images", "source", "mnist"),
        ("embedded-images", "without", ["cat"]),
    ]
    for kind, setting, value in wrong:
        with pytest.raises(ConfigError, match=setting):
            sampler(kind, **{setting: value})
    with pytest.raises(InputError, match="COTERIE_DATA, which is not set"):
        sampler("omniglot").sample(1, seeded())


def test_vectors_are_bytes_or_floats_with_a_class_each() -> None:
    instances, classes = Instances((8, 8), (2, 3), "composition", 1.0), torch.arange(30) % 3
    codes = torch.stack((classes, torch.arange(30)), dim=1)
    of_bytes = VectorTasks(codes.to(torch.uint8), 0.5, classes, instances).sample(4, seeded())
    assert set(of_bytes.x[..., 1].flatten().tolist()) <= {0.5 * number for number in range(30)}
    for dtype in (torch.float32, torch.float64, torch.float16):
        of_floats = VectorTasks(codes.to(dtype) / 4 - 3, 2.0, classes, instances).sample(4, seeded())
        assert of_floats.x.dtype == torch.float32
        assert torch.equal(of_floats.labels, of_bytes.labels)
        assert torch.equal(of_floats.x, of_bytes.x - 6)  # fractions and signs are kept
    for wrong in (codes, codes > 3, codes.float()[0], codes.float()[:, :, None]):
        with pytest.raises(InputError, match=f"codes are {wrong.dtype} of shape .* give bytes or floats of shape"):
            VectorTasks(wrong, 1.0, classes, instances)
    with pytest.raises(InputError, match="give bytes or floats of shape"):
        VectorTasks(codes.to(torch.uint8), 1.0, classes[:-1], instances)


@needs_data
def test_omniglot_as_published() -> None:
    settings = {"rotations": True, "max_degrees": 15.0}
    batch = sampler("omniglot", without=["Greek", "Latin"], **settings).sample(4, seeded())
    assert batch.x.shape == (4, 100, 784)
    assert ((batch.labels.amax(dim=1) >= 4) & (batch.labels.amax(dim=1) < 35)).all()
    assert 0.02 < batch.x.mean() < 0.3, "ink on an empty ground"
    assert sampler("omniglot", part="evaluation", clusters=[5, 47]).sample(2, seeded()).x.shape == (2, 100, 784)


@needs_data
@pytest.mark.parametrize("source", ["cifar100-train", "cifar100-test"])
def test_embeddings_as_published(source: str) -> None:
    batch = sampler("embedded-images", source=source, without=list(range(80))).sample(3, seeded())
    assert batch.x.shape == (3, 300, 1280)
    assert (batch.labels.amax(dim=1) < 12).all()


def test_choice_of_names() -> None:
    assert select_names(["a", "b", "c"], [], ["b"]) == ["a", "c"]
    assert select_names(["a", "b", "c"], ["c", "a"], []) == ["c", "a"]
    with pytest.raises(ConfigError, match="'d' is not one of: a, b"):
        select_names(["a", "b"], ["d"], [])
    with pytest.raises(ConfigError, match="leave nothing"):
        select_names([1, 2], [1], [1])
