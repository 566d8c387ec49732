"""Encoders that learn by naming classes, for networks to begin with or to look through.

Pairs are a weak teacher for an encoder from nothing: most are of two classes, and after some minutes a network that
compares pairs still called all of them so. Names of the same classes say as much about the pictures, and are quicker.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, final

import torch
from jaxtyping import Float, Int, UInt8
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from benchmarks.quality.networks import SEED
from coterie.nn.model import build
from coterie.nn.vision import ElementEncoder, Encoder

SAY_EVERY: Final = 100
SHARPNESS: Final = 16.0
"""What directions are multiplied by before they are named."""

Moved: TypeAlias = Callable[[UInt8[Tensor, "M C H W"], Generator], Float[Tensor, "M C H W"]]
"""From pictures as they are stored to pictures from 0 to 1 as they are looked at, each moved a little by chance."""


@final
@dataclass(frozen=True)
class Naming:
    """How an encoder is trained."""

    channels: int
    steps: int
    batch_size: int
    """Pictures in a step."""
    encoder: Encoder = "vgg"
    by_direction: bool = False
    """Whether only the direction of the features counts, as where they are compared by angles; not their length."""
    learning_rate: float = 2e-3
    smoothing: float = 0.1
    """Share of the certainty that is spread over all names."""


@final
@dataclass(frozen=True)
class NamedPictures:
    """What an encoder is trained with."""

    images: UInt8[Tensor, "M C H W"]
    classes: Int[Tensor, " M"]
    """Any numbers."""
    moved: Moved


@final
@dataclass(frozen=True)
class _NamerConfig:
    naming: Naming
    image: tuple[int, int, int]
    n_classes: int


class _Namer(nn.Module):
    """An encoder, and what makes names of its features."""

    def __init__(self, config: _NamerConfig) -> None:
        super().__init__()
        naming, image = config.naming, config.image
        self.by_direction = naming.by_direction
        self.encoder = ElementEncoder(naming.encoder, image[0] * image[1] * image[2], image, naming.channels)
        self.names = nn.Linear(self.encoder.out_width, config.n_classes)

    def forward(self, images: Float[Tensor, "M C H W"]) -> Float[Tensor, "M N"]:
        """Logits of the names of each picture."""
        features = self.encoder(images.flatten(1).unsqueeze(0))[0]
        read = SHARPNESS * normalize(features, dim=1) if self.by_direction else torch.relu(features)
        named: Tensor = self.names(read)
        return named


def encoder_that_names(
    naming: Naming, shown: Callable[[], NamedPictures], path: Path
) -> tuple[Mapping[str, Tensor], float]:
    """Its weights, by their names in a network that has it as ``encoder``, and the minutes that it took.

    What the file has is not trained again, nor are its pictures asked for.
    """
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        weights, minutes = _trained(naming, shown())
        unfinished = path.with_suffix(".partial")
        save_file({**weights, "minutes": torch.tensor(minutes)}, unfinished)
        unfinished.replace(path)
    weights = load_file(path)
    return weights, round(float(weights.pop("minutes")), 1)


def _trained(naming: Naming, shown: NamedPictures) -> tuple[dict[str, Tensor], float]:
    generator = Generator().manual_seed(SEED)
    classes, names = torch.unique(shown.classes, return_inverse=True)
    channels, height, width = shown.images.shape[1:]
    model = build(_Namer, _NamerConfig(naming, (channels, height, width), len(classes)), generator)
    optimiser = torch.optim.AdamW(model.parameters(), naming.learning_rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, naming.learning_rate, naming.steps)
    began = time.process_time()
    right = 0.0
    for step in range(1, naming.steps + 1):
        index = torch.randint(len(names), (naming.batch_size,), generator=generator)
        named = model(shown.moved(shown.images[index], generator))
        loss = cross_entropy(named, names[index], label_smoothing=naming.smoothing)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()
        schedule.step()
        right += float((named.argmax(dim=1) == names[index]).float().mean()) / SAY_EVERY
        if step % SAY_EVERY == 0:
            said = {"step": step, "of": naming.steps, "loss": round(float(loss.detach()), 3), "right": round(right, 3)}
            print(f"encoder: {json.dumps(said)}", flush=True)
            right = 0.0
    weights = {f"encoder.{name}": value.contiguous() for name, value in model.encoder.state_dict().items()}
    return weights, (time.process_time() - began) / 60
