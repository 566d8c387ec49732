"""Random numbers in the words that the prior needs, all of them from one generator."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor


@final
@dataclass(frozen=True, slots=True)
class Dice:
    """A generator that speaks of ranges and chances."""

    generator: Generator

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Numbers between two ends."""
        return low + (high - low) * torch.rand(shape, generator=self.generator)

    def log_uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Numbers between two positive ends whose logarithm is uniform."""
        return self.uniform(math.log(low), math.log(high), *shape).exp()

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, generator=self.generator)

    def gamma(self, concentration: Tensor) -> Tensor:
        """Gamma numbers of rate one, one for each concentration."""
        return torch._standard_gamma(concentration, generator=self.generator)

    def student(self, freedom: Float[Tensor, " N"], width: int) -> Float[Tensor, "N D"]:
        """Rows from Student's t, each with its own degrees of freedom; the far tail is cut at eight."""
        scale = (self.gamma(freedom / 2) * 2 / freedom).clamp_min(1e-3).rsqrt()
        rows = self.normal(len(freedom), width) * scale.unsqueeze(1)
        length = rows.norm(dim=1, keepdim=True) / math.sqrt(width)
        shortened: Tensor = rows * (8 / length.clamp_min(8))
        return shortened

    def number(self, low: float, high: float) -> float:
        """One number between two ends."""
        return float(self.uniform(low, high))

    def log_number(self, low: float, high: float) -> float:
        """One number between two positive ends whose logarithm is uniform."""
        return float(self.log_uniform(low, high))

    def integer(self, low: int, high: int) -> int:
        """One whole number, both ends included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers, both ends included."""
        return torch.randint(low, high + 1, shape, generator=self.generator)

    def order(self, count: int) -> Int[Tensor, " N"]:
        """The numbers from 0 in random order."""
        return torch.randperm(count, generator=self.generator)

    def happens(self, chance: float) -> bool:
        """True with that probability."""
        return self.number(0.0, 1.0) < chance

    def pick(self, weights: Mapping[str, float]) -> str:
        """One of the names, by weight."""
        left = self.number(0.0, sum(weights.values()))
        for name, weight in weights.items():
            left -= weight
            if left < 0:
                return name
        return next(reversed(list(weights)))

    def frames(self, count: int, height: int, width: int) -> Float[Tensor, "K H W"]:
        """Matrices whose columns are orthonormal, uniformly turned; there must be no more columns than rows."""
        turned: Tensor = torch.linalg.qr(self.normal(count, height, width))[0]
        return turned
