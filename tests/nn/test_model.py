"""Models that are built from a generator."""

from dataclasses import dataclass

import pytest
import torch
from torch import Generator, Tensor, nn

from coterie.nn.model import ClusterModel, Loss, build
from coterie.ops.partitions import Clustering


@dataclass(frozen=True)
class RandomConfig:
    """How many numbers to draw."""

    size: int


class RandomModel(ClusterModel[Tensor]):
    """Nothing but weights."""

    Config = RandomConfig

    def __init__(self, config: RandomConfig) -> None:
        super().__init__()
        self.layer = nn.Linear(config.size, 3)
        self.drawn = nn.Parameter(torch.randn(config.size))

    def loss(self, batch: Tensor, generator: Generator) -> Loss:
        raise NotImplementedError

    def cluster(self, x: Tensor, generator: Generator) -> Clustering:
        raise NotImplementedError

    def after_step(self) -> None:
        raise NotImplementedError


def weights(source: Generator, size: int = 4) -> Tensor:
    model = build(RandomModel, RandomConfig(size), source)
    assert isinstance(model, RandomModel)
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def generator(seed: int) -> Generator:
    return Generator().manual_seed(seed)


@pytest.mark.usefixtures("untouched_random_state")
def test_first_weights_come_from_the_generator_alone() -> None:
    first = weights(generator(3))
    with torch.random.fork_rng(devices=[]):
        torch.rand(5)  # whatever torch's own state is
        assert torch.equal(weights(generator(3)), first)
    assert not torch.equal(weights(generator(4)), first)


@pytest.mark.usefixtures("untouched_random_state")
def test_one_generator_gives_different_models_in_turn() -> None:
    source = generator(3)
    first, second = weights(source), weights(source)
    assert not torch.equal(first, second)
    again = generator(3)
    weights(again, size=9)  # how much a model draws does not matter to the next
    assert torch.equal(weights(again), second)


@pytest.mark.usefixtures("untouched_random_state")
def test_the_random_state_is_left_even_if_a_model_cannot_be_built() -> None:
    with pytest.raises(RuntimeError, match="negative"):
        weights(generator(0), size=-1)
