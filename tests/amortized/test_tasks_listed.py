"""Labelled tasks in memory: what is sampled from them, and invalid settings."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from coterie.amortized.tasks.labelled import ListedTasks, pad_tasks
from coterie.errors import InputError
from coterie.nn.model import TaskSampler


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def one_set(n: int, k: int, seed: int = 0, d: int = 3) -> tuple[Tensor, Tensor]:
    labels = torch.arange(n) % k
    return 5.0 * labels.unsqueeze(1) + torch.randn((n, d), generator=seeded(seed)), labels + 7  # names are any numbers


SETS = [one_set(40, 4), one_set(12, 2, seed=1), one_set(1, 1, seed=2)]


def test_it_is_a_sampler_of_padded_batches() -> None:
    tasks = ListedTasks(SETS, max_points=20)
    assert isinstance(tasks, TaskSampler)
    batch = tasks.sample(16, seeded())
    assert batch.x.shape[:2] == batch.labels.shape == batch.valid.shape
    assert (batch.x.shape[0], batch.x.shape[2]) == (16, 3)
    assert (batch.valid.sum(dim=1) >= 1).all()
    assert int(batch.valid.sum(dim=1).max()) == batch.x.shape[1] <= 20
    assert (batch.labels >= 0).all()
    assert int(batch.labels.max()) < 4
    assert (batch.x[~batch.valid] == 0).all()


@pytest.mark.usefixtures("untouched_random_state")
def test_the_generator_decides_everything() -> None:
    tasks = ListedTasks(SETS)
    first, second, other = (tasks.sample(8, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.labels, second.labels)
    assert first.x.shape != other.x.shape or not torch.equal(first.x, other.x)


def test_the_number_of_clusters_varies_and_clusters_stay_whole() -> None:
    tasks = ListedTasks(SETS[:1], max_points=1000, random_rotations=False)
    counts = set()
    for seed in range(40):
        batch = tasks.sample(1, seeded(seed))
        sizes = batch.labels[0].bincount(minlength=4)
        assert set(sizes.tolist()) <= {0, 10}
        counts.add(int((sizes > 0).sum()))
    assert counts == {1, 2, 3, 4}


def test_points_keep_their_clusters() -> None:
    x, names = SETS[0]
    batch = ListedTasks(SETS[:1], random_rotations=False).sample(3, seeded())
    for i in range(3):
        for point, label in zip(batch.x[i, batch.valid[i]], batch.labels[i, batch.valid[i]], strict=True):
            row = int((x == point).all(dim=1).nonzero())
            assert int(names[row]) == int(label) + 7


def test_rotation_keeps_distances_and_works_for_one_feature() -> None:
    plain = ListedTasks(SETS[:1], drop_clusters=False, random_rotations=False).sample(1, seeded())
    turned = ListedTasks(SETS[:1], drop_clusters=False, random_rotations=True).sample(1, seeded())
    torch.testing.assert_close(torch.pdist(turned.x[0]), torch.pdist(plain.x[0]))
    torch.testing.assert_close(turned.x.mean(dim=1), plain.x.mean(dim=1))
    assert not torch.allclose(turned.x, plain.x)
    batch = ListedTasks([one_set(9, 3, d=1)]).sample(2, seeded())
    assert batch.x.isfinite().all()


def test_what_is_left_of_a_set_is_on_the_scale_of_whole_ones() -> None:
    x, names = SETS[0]
    constant = torch.cat([x, torch.full((40, 1), 0.3)], dim=1)
    batch = ListedTasks([(constant, names)], max_points=15, random_rotations=False, standardised=True).sample(
        6, seeded()
    )
    for i in range(6):
        shown = batch.x[i, batch.valid[i]]
        torch.testing.assert_close(shown.mean(dim=0), torch.zeros(4), atol=1e-5, rtol=0)
        torch.testing.assert_close(shown.std(dim=0, correction=0)[:3], torch.ones(3), atol=1e-4, rtol=0)
        assert (shown[:, 3].abs() < 1e-5).all()
    one = ListedTasks(SETS[2:], standardised=True).sample(2, seeded())
    assert (one.x.abs() < 1e-6).all()


def test_padding() -> None:
    batch = pad_tasks([(torch.ones(2, 1), torch.tensor([0, 1])), (torch.ones(1, 1), torch.tensor([2]))])
    assert batch.valid.tolist() == [[True, True], [True, False]]
    assert batch.labels.tolist() == [[0, 1], [2, 0]]
    assert batch.x.squeeze(2).tolist() == [[1.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("sets", "settings", "words"),
    [
        ([], {}, "at least one point"),
        ([(torch.ones(0, 2), torch.ones(0, dtype=torch.int64))], {}, "at least one point"),
        ([(torch.ones(3, 2), torch.zeros(2, dtype=torch.int64))], {}, "one label for each point"),
        ([one_set(4, 2), one_set(4, 2, d=5)], {}, r"different numbers of features \(3, 5\)"),
        (SETS, {"max_points": 0}, "max_points=0 must be at least 1"),
    ],
)
def test_invalid_settings_are_rejected(sets: Any, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ListedTasks(sets, **settings)
