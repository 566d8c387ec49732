"""Sets of hand-written characters that methods are compared on: many small ones, and whole alphabets.

Sets depend on the alphabet, the task and how many there are, and on nothing else: all methods get the same ones.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, final

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Generator, Tensor

from benchmarks.data.images import load_pictures
from coterie.amortized.tasks.classes import Catalogue, Instances, chosen

Task = Literal["varying", "fixed", "whole"]
"""Sets of 100 images of 5 to 47 characters or of 20 of them, and all images of an alphabet."""

N_POINTS: Final = 100
FIXED: Final = 20
CLUSTERS: Final = (5, 47)
SEEDS: Final = MappingProxyType({"varying": 91_000, "fixed": 92_000})
"""To which the number of the alphabet is added."""


@final
@dataclass(frozen=True, eq=False)
class Alphabet:
    """All images of the characters of one alphabet."""

    name: str
    number: int
    """Its place among all fifty."""
    images: UInt8[Tensor, "M 1 H W"]
    labels: Int[Tensor, " M"]
    """Character of each, 0..C-1."""

    @property
    def n_classes(self) -> int:
        """C."""
        return int(self.labels.max()) + 1

    @property
    def pixels(self) -> Float[Tensor, "M D"]:
        """The images as they are learned from: flat, from 0 to 1."""
        return self.images.flatten(1).float() / 255


@final
@dataclass(frozen=True, eq=False)
class CharacterSet:
    """Some images of an alphabet."""

    index: Int[Tensor, " N"]
    """Which ones."""
    labels: Int[Tensor, " N"]
    n_clusters: int


def alphabets(part: Literal["background", "evaluation"], only: Sequence[str] = ()) -> list[Alphabet]:
    """Alphabets of a part, all of them or those of the names given."""
    pictures = load_pictures("omniglot")
    of_part = np.unique(pictures.groups[pictures.parts == pictures.part_names.index(part)])
    names = chosen([pictures.group_names[group] for group in of_part], only, ())
    found = []
    for name in names:
        number = pictures.group_names.index(name)
        here = pictures.groups == number
        _, labels = np.unique(pictures.classes[here], return_inverse=True)
        images = torch.from_numpy(pictures.images[here]).unsqueeze(1)
        found.append(Alphabet(name, number, images, torch.from_numpy(labels)))
    return found


def sets_of(alphabet: Alphabet, task: Task, n_sets: int) -> list[CharacterSet]:
    """Sets of an alphabet by ABC's Algorithm 1; the one that there is, if it is the whole."""
    if task == "whole":
        return [CharacterSet(torch.arange(len(alphabet.labels)), alphabet.labels, alphabet.n_classes)]
    fixed = min(FIXED, alphabet.n_classes)
    clusters = CLUSTERS if task == "varying" else (fixed, fixed)
    instances = Instances((N_POINTS, N_POINTS), clusters, "composition", 1.0)
    catalogue = Catalogue.of(alphabet.labels, torch.zeros_like(alphabet.labels))
    instances.check(catalogue)
    draw = instances.draw(catalogue, n_sets, Generator().manual_seed(SEEDS[task] + alphabet.number))
    return [
        CharacterSet(index, labels, int(labels.max()) + 1)
        for index, labels in zip(draw.index, draw.labels, strict=True)
    ]


@cache
def published() -> dict[str, Any]:
    """What the papers print."""
    return tomllib.loads(Path(__file__).with_name("omniglot_published.toml").read_text(encoding="utf-8"))
