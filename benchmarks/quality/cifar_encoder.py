"""The encoder that all networks for CIFAR-100 begin with: it learned to name the training classes.

Pairs are a weak teacher for an encoder from nothing: most are of two classes, and after some minutes a network that
compares pairs still called all of them so. Names of the same classes say as much about the pictures, and are quicker.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import torch
from jaxtyping import Float, UInt8
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.quality.cifar_data import IMAGE, SHIFTED, STRETCHED, TURNED, pictures
from benchmarks.quality.networks import SEED
from coterie.models.base import build
from coterie.nn.vision import ElementEncoder
from coterie.tasks.images import Distortion

SAY_EVERY: Final = 100


@final
@dataclass(frozen=True)
class Naming:
    """How the encoder is trained."""

    channels: int
    steps: int
    batch_size: int
    """Pictures in a step."""
    learning_rate: float = 2e-3
    smoothing: float = 0.1
    """Share of the certainty that is spread over all names."""

    @property
    def file(self) -> str:
        """Name of the file that the encoder is kept in."""
        return f"named-{self.channels}-{self.steps}.safetensors"


class _Namer(nn.Module):
    """An encoder, and what makes names of its features."""

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__()
        channels, n_classes = shape
        self.encoder = ElementEncoder("vgg", IMAGE[0] * IMAGE[1] * IMAGE[2], IMAGE, channels)
        self.names = nn.Linear(self.encoder.out_width, n_classes)

    def forward(self, images: Float[Tensor, "M C H W"]) -> Float[Tensor, "M N"]:
        """Logits of the names of each picture."""
        named: Tensor = self.names(torch.relu(self.encoder(images.flatten(1).unsqueeze(0))[0]))
        return named


def encoder_that_names(naming: Naming, folder: Path) -> tuple[Mapping[str, Tensor], float]:
    """Its weights, by their names in a network that has it as ``encoder``, and the minutes that it took."""
    path = folder / naming.file
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        weights, minutes = _trained(naming)
        unfinished = path.with_suffix(".partial")
        save_file({**weights, "minutes": torch.tensor(minutes)}, unfinished)
        unfinished.replace(path)
    weights = load_file(path)
    return weights, round(float(weights.pop("minutes")), 1)


def _trained(naming: Naming) -> tuple[dict[str, Tensor], float]:
    shown, generator = pictures("training"), Generator().manual_seed(SEED)
    classes, names = torch.unique(shown.classes, return_inverse=True)
    model = build(_Namer, (naming.channels, len(classes)), generator)
    optimiser = torch.optim.AdamW(model.parameters(), naming.learning_rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, naming.learning_rate, naming.steps)
    began = time.process_time()
    right = 0.0
    for step in range(1, naming.steps + 1):
        index = torch.randint(len(names), (naming.batch_size,), generator=generator)
        named = model(_moved(shown.images[index], generator))
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


def _moved(images: UInt8[Tensor, "M C H W"], generator: Generator) -> Float[Tensor, "M C H W"]:
    """Pictures from 0 to 1 as the training sets of networks have them: mirrored or not, and a little distorted."""
    mirrored = torch.rand((len(images), 1, 1, 1), generator=generator) < 0.5
    images = torch.where(mirrored, images.flip(3), images)
    return Distortion(TURNED, STRETCHED, SHIFTED).applied(images.float() / 255, generator)
