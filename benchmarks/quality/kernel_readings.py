"""Ways to read clusters off a kernel of probabilities to be together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from jaxtyping import Float, Int
from torch import Generator, Tensor

from coterie.amortized.abc.network import eigengap, spectral_labels
from coterie.ops.correlation import average_linkage, contracted, cut, cut_into

SEED: Final = 0
"""Of spectral clustering, for every kernel anew."""
TOLD: Final[Mapping[str, bool]] = MappingProxyType(
    {"linkage": False, "contraction": False, "eigengap": False, "linkage-k": True, "spectral-k": True}
)
"""Average linkage at a cut, contraction of log-odds, spectral as published; two that are told k."""

Seen = TypeVar("Seen")
Labels = Int[Tensor, " N"]


@dataclass(frozen=True)
class Reading(Generic[Seen]):
    """A way to clusters from what was seen of a set."""

    read: Callable[[Seen, int], Labels]
    """From that and the true number of clusters to labels."""
    told: bool = False
    """Whether it makes use of that number."""


def kernel_readings(at: float) -> dict[str, Reading[Float[Tensor, "N N"]]]:
    """All of them, the cut of average linkage given."""
    return {
        "linkage": Reading(lambda kernel, _: cut(average_linkage(kernel), at)),
        "contraction": Reading(lambda kernel, _: contracted(kernel)),
        "eigengap": Reading(lambda kernel, _: spectral_labels(kernel, eigengap(kernel), _generator())),
        "linkage-k": Reading(lambda kernel, k: cut_into(average_linkage(kernel), k), TOLD["linkage-k"]),
        "spectral-k": Reading(lambda kernel, k: spectral_labels(kernel, k, _generator()), TOLD["spectral-k"]),
    }


def _generator() -> Generator:
    return Generator().manual_seed(SEED)
