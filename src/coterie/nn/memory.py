"""Memory of what went before: the last entries, which contrastive methods tell new ones apart from.

Letters: L entries that there is room for, F that are there, M new ones; their shape is any.
"""

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from coterie.errors import ConfigError


@final
class MemoryBank(nn.Module):
    """The last entries that were added; saved with the model, so that training goes on with them.

    Parameters
    ----------
    length : int
        How many entries are held at most, L; none at all with 0.
    shape : tuple of int
        Shape of one entry: (E,) for a feature of an instance, (K, E) for one round of K clusters.
    """

    entries: Float[Tensor, "L ..."]
    """Where entries lie, in a ring."""
    place: Int[Tensor, ""]
    """Where the next one goes."""
    filled: Int[Tensor, ""]
    """How many there are."""

    def __init__(self, length: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        if length < 0 or min(shape, default=1) < 1:
            raise ConfigError(f"length={length} must be at least 0, and all of shape={shape} at least 1.")
        self.register_buffer("entries", torch.zeros((length, *shape)))
        self.register_buffer("place", torch.zeros((), dtype=torch.long))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def add(self, new: Float[Tensor, "M ..."]) -> None:
        """Remember new entries, the last of them as the newest, in place of the oldest."""
        length, shape = len(self.entries), self.entries.shape[1:]
        if new.ndim == 0 or new.shape[1:] != shape:
            raise ConfigError(
                f"Entries of shape {tuple(new.shape)} do not fit a memory of entries of shape {tuple(shape)}; "
                "give one entry or more along a first axis."
            )
        if length == 0:
            return
        newest = new[-length:]
        where = (self.place + torch.arange(len(newest), device=self.place.device)) % length
        self.entries[where] = newest.to(self.entries)
        self.place.copy_((self.place + len(newest)) % length)
        self.filled.copy_((self.filled + len(newest)).clamp(max=length))

    def held(self) -> Float[Tensor, "F ..."]:
        """All entries so far, the oldest first.

        A copy: what was computed with it can still be differentiated after more is added.
        """
        count = int(self.filled)
        first = self.place - self.filled
        return self.entries[(first + torch.arange(count, device=self.place.device)) % max(len(self.entries), 1)]
