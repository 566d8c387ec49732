"""Networks that are compared on CIFAR-100, and the encoder that all of them begin with.

The VGG-like encoder costs nearly all of a step, so it is narrower than published, and learned once: by naming the
training classes. From there the networks that are compared go on, each with its encoder, end to end.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

import torch
from jaxtyping import Float, UInt8
from torch import Generator, Tensor

from benchmarks.quality.cifar_data import (
    CLUSTERS,
    IMAGE,
    N_POINTS,
    SHIFTED,
    STRETCHED,
    TURNED,
    held_out_sets,
    pictures,
    training_tasks,
)
from benchmarks.quality.naming import NamedPictures, Naming, encoder_that_names
from benchmarks.quality.networks import Network, as_batch, minutes, one_cycle, trained
from coterie.amortized.abc.network import AttentionBasedConfig, AttentionBasedModel, Compatibility
from coterie.amortized.tasks.classes import Distortion, Instances
from coterie.metrics import adjusted_rand_index
from coterie.nn.model import TaskBatch

CHANNELS: Final = 24
"""Of the encoder's first layer; the published one has 64."""
VALIDATION_SETS: Final = 60

AbcNetwork: TypeAlias = Network[AttentionBasedModel]


def _config(compatibility: Compatibility, depth: int) -> AttentionBasedConfig:
    n_features = IMAGE[0] * IMAGE[1] * IMAGE[2]
    return AttentionBasedConfig(
        n_features, encoder="vgg", image=IMAGE, channels=CHANNELS, compatibility=compatibility, depth=depth
    )


def _compared(compatibility: Compatibility, depth: int) -> AbcNetwork:
    """A network on sets like those of the test, which goes on with the shared encoder."""
    instances = Instances((N_POINTS, N_POINTS), CLUSTERS, "composition", 1.0)
    training = one_cycle(400, 3e-4, evaluate_every=100)
    return Network(AttentionBasedModel, _config(compatibility, depth), training, batch_size=4, instances=instances)


SHARED: Final = Naming(CHANNELS, steps=2500, batch_size=128)
"""How the encoder is learned."""
NETWORKS: Final[Mapping[str, AbcNetwork]] = MappingProxyType(
    {
        "multiplicative": _compared("multiplicative", 2),
        "additive": _compared("additive", 2),
        "pairwise": _compared("additive", 0),
    }
)


def _held_back() -> list[TaskBatch]:
    return [as_batch(one.pixels, one.labels) for one in held_out_sets("validation", VALIDATION_SETS)]


@cache
def shared_encoder(folder: Path) -> tuple[Mapping[str, Tensor], float]:
    """Weights of the encoder that all networks begin with, by their names in a network, and the minutes they took."""
    path = folder / f"named-{SHARED.channels}-{SHARED.steps}.safetensors"
    return encoder_that_names(SHARED, _named_pictures, path)


def _named_pictures() -> NamedPictures:
    shown = pictures("training")
    return NamedPictures(shown.images, shown.classes, _moved)


def _moved(images: UInt8[Tensor, "M C H W"], generator: Generator) -> Float[Tensor, "M C H W"]:
    """Pictures from 0 to 1 as the training sets of networks have them: mirrored or not, and a little distorted."""
    mirrored = torch.rand((len(images), 1, 1, 1), generator=generator) < 0.5
    images = torch.where(mirrored, images.flip(3), images)
    return Distortion(TURNED, STRETCHED, SHIFTED).applied(images.float() / 255, generator)


def compared_network(name: str, folder: Path) -> AttentionBasedModel:
    """The network of that name, trained as far as it is not yet, and calibrated on the validation sets."""
    network = NETWORKS[name]
    return trained(
        name,
        network,
        training_tasks(network.checked_instances()),
        folder / f"{name}-{network.training.steps}",
        held_back=_held_back(),
        score=adjusted_rand_index,
        start=shared_encoder(folder)[0],
    )


def minutes_of(network: AbcNetwork) -> float:
    """Processor time that training it takes."""
    return minutes(network, training_tasks(network.checked_instances()))
