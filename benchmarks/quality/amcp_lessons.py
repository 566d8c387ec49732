"""What networks learn from for AMCP's pictures: classes to name, and other classes to sort.

Five classes are too few to learn from what makes a class: a network learns these five by heart. So pictures are put
together of two halves, each of a class that is as it is or turned by a quarter to either side: fifteen kinds of halves
make 225 classes. An encoder learns to name those made of an upper and a lower half. What finds clusters must learn from
classes that are as strange to the encoder as those of the test will be: those made of a left and a right half. Where
there are classes enough, every other one is named, and the others are sorted.

No half is turned upside down: a six would be a nine, which is one of the digits of the test.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Final, final

import torch
from jaxtyping import Float, UInt8
from torch import Generator, Tensor

from benchmarks.quality.amcp_data import HOLDS_BACK_CLASSES, TRAINING_CLASSES, Collection, Pictures, pictures
from benchmarks.quality.networks import SEED
from coterie.amortized.tasks.classes import Distortion
from coterie.errors import InputError

QUARTERS: Final = (0, 1, 3)
"""Quarter turns of a half."""
MEMBERS: Final = 200
"""Pictures that are put together of each class."""
HELD_BACK_EVERY: Final = 10
"""Of the classes that are sorted, one of so many is held back, to calibrate with."""
MOVED: Final = Distortion(turn_by=10.0, stretched=0.1, shifted=0.05)
"""How much a picture may change without becoming another."""


@final
@dataclass(frozen=True, eq=False)
class Lessons:
    """Pictures of classes that have nothing to do with those of the test."""

    named: Pictures
    sorted: Pictures
    held_back: Pictures
    """Like those that are sorted; of other classes."""


@cache
def lessons(collection: Collection, n_classes: int | None = None) -> Lessons:
    """What networks of a collection learn from.

    Parameters
    ----------
    collection : str
        What there are pictures of.
    n_classes : int, optional
        How many of the training classes are used, the first ones; all if it is not given.
    """
    shown = pictures(collection, "training")
    # Held-back classes do not count as training classes.
    at_hand = [number for number in TRAINING_CLASSES[collection] if bool((shown.classes == number).any())]
    if n_classes is not None and not 2 <= n_classes <= len(at_hand):
        raise InputError(f"n_classes={n_classes} must be from 2 to {len(at_hand)}, which {collection} trains on.")
    used = at_hand[:n_classes]
    if collection in HOLDS_BACK_CLASSES:
        named, others = (shown.only(torch.isin(shown.classes, torch.tensor(used[start::2]))) for start in (0, 1))
    else:
        named, others = (_put_together(shown, used, side_by_side=side_by_side) for side_by_side in (False, True))
    place = torch.unique(others.classes, return_inverse=True)[1]
    held_back = place % HELD_BACK_EVERY == HELD_BACK_EVERY - 1
    return Lessons(named, others.only(~held_back), others.only(held_back))


def _put_together(shown: Pictures, classes: list[int], *, side_by_side: bool) -> Pictures:
    """Pictures of two halves: left and right, of different kinds, or upper and lower, of one kind a whole picture."""
    generator = Generator().manual_seed(SEED)
    kinds = list(product(classes, QUARTERS))
    made = []
    for first, second in product(kinds, kinds):
        if first == second and side_by_side:
            continue  # a whole picture, which is named already
        ones = _drawn(shown, first, generator)
        others = ones if first == second else _drawn(shown, second, generator)
        made.append(_halves(ones, others, side_by_side=side_by_side))
    return Pictures(torch.cat(made), torch.arange(len(made)).repeat_interleave(MEMBERS))


def _drawn(shown: Pictures, kind: tuple[int, int], generator: Generator) -> UInt8[Tensor, "M C H W"]:
    number, quarters = kind
    members = (shown.classes == number).nonzero().squeeze(1)
    drawn = members[torch.randint(len(members), (MEMBERS,), generator=generator)]
    return shown.images[drawn].rot90(quarters, (2, 3))


def _halves(ones: Tensor, others: Tensor, *, side_by_side: bool) -> UInt8[Tensor, "M C H W"]:
    dimension = 3 if side_by_side else 2
    middle = ones.shape[dimension] // 2
    rest = ones.shape[dimension] - middle
    return torch.cat((ones.narrow(dimension, 0, middle), others.narrow(dimension, middle, rest)), dim=dimension)


def moved(images: UInt8[Tensor, "M C H W"], generator: Generator) -> Float[Tensor, "M C H W"]:
    """Pictures from 0 to 1, a little distorted; photographs, which have colours, are mirrored or not."""
    if images.shape[1] > 1:
        mirrored = torch.rand((len(images), 1, 1, 1), generator=generator) < 0.5
        images = torch.where(mirrored, images.flip(3), images)
    return MOVED.applied(images.float() / 255, generator)
