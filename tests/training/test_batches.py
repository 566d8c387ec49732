"""Streams of batches."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Generator

from coterie.amortized.tasks.synthetic import MixturesOfGaussians
from coterie.training.batches import generator_on, point_batches, task_batches, view_batches


def generator(seed: int = 1) -> Generator:
    return Generator().manual_seed(seed)


@pytest.mark.parametrize(("count", "batch_size", "per_epoch"), [(10, 4, 3), (8, 4, 2), (3, 10, 1), (1, 1, 1)])
def test_every_epoch_sees_every_row_once(count: int, batch_size: int, per_epoch: int) -> None:
    x = torch.arange(count).float().unsqueeze(1)
    made = list(point_batches(x, batch_size=batch_size, epochs=3, generator=generator(), weight=x[:, 0] * 2))
    assert len(made) == 3 * per_epoch
    assert [batch.ends_epoch for batch in made] == ([False] * (per_epoch - 1) + [True]) * 3
    for epoch in range(3):
        part = made[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert torch.cat([batch.index for batch in part]).sort().values.tolist() == list(range(count))
    for batch in made:
        assert torch.equal(batch.x[:, 0], batch.index.float())
        assert batch.weight is not None
        assert torch.equal(batch.weight, batch.index.float() * 2)


def test_every_epoch_has_another_order() -> None:
    orders = [
        b.index.tolist() for b in point_batches(torch.zeros(30, 1), batch_size=30, epochs=2, generator=generator())
    ]
    assert orders[0] != orders[1]


def add_noise(rows: torch.Tensor, source: Generator) -> torch.Tensor:
    return rows + 0.1 * torch.rand(rows.shape, generator=source)


def test_views_are_of_the_same_distinct_rows() -> None:
    x = torch.arange(10).float().unsqueeze(1)
    made = list(islice(view_batches(x, add_noise, batch_size=4, generator=generator()), 6))
    for batch in made:
        assert len(torch.unique(batch.index)) == 4
        for view in (batch.first, batch.second):
            assert torch.equal(view.floor()[:, 0].long(), batch.index)
        assert not torch.equal(batch.first, batch.second)
    assert len({tuple(batch.index.tolist()) for batch in made}) > 1
    whole = next(view_batches(x, add_noise, batch_size=99, generator=generator()))
    assert whole.index.sort().values.tolist() == list(range(10))


@pytest.mark.parametrize(
    "start",
    [
        partial(task_batches, MixturesOfGaussians(max_points=20), batch_size=3),
        partial(view_batches, torch.arange(10.0).unsqueeze(1), add_noise, batch_size=4),
    ],
    ids=["tasks", "views"],
)
@pytest.mark.usefixtures("untouched_random_state")
def test_batches_are_infinite_and_follow_from_the_state_of_the_generator(start: Callable[..., Iterator[Any]]) -> None:
    source, later = generator(), generator(9)
    stream = start(generator=source)
    list(islice(stream, 5))
    later.set_state(source.get_state())
    for batch, again in islice(zip(stream, start(generator=later), strict=True), 5):
        for field in fields(batch):
            assert torch.equal(getattr(batch, field.name), getattr(again, field.name))


def test_tasks_vary_in_size_and_are_moved_to_the_device() -> None:
    sampler = MixturesOfGaussians(max_points=20)
    shapes = {batch.x.shape for batch in islice(task_batches(sampler, batch_size=3, generator=generator()), 5)}
    assert len(shapes) > 1
    assert {shape[0] for shape in shapes} == {3}
    here, there = (
        next(task_batches(sampler, batch_size=3, generator=generator(), device=device)) for device in ("cpu", "meta")
    )
    assert {part.device.type for part in (there.x, there.labels, there.valid)} == {"meta"}
    assert there.x.shape == here.x.shape


def test_a_generator_on_the_device_is_reused() -> None:
    source = generator()
    assert generator_on("cpu", source) is source
