"""Ways to decode clusters from a kernel, the probabilities that pairs of elements belong together."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from jaxtyping import Float, Int
from torch import Generator, Tensor

from coterie.amortized.abc.network import eigengap, spectral_labels
from coterie.ops.correlation import average_linkage, contract_edges, cut_at, cut_into

SEED: Final = 0
GIVEN_K: Final[Mapping[str, bool]] = MappingProxyType(
    {"linkage": False, "contraction": False, "eigengap": False, "linkage-k": True, "spectral-k": True}
)
"""Average linkage at a cut, contraction of log-odds, spectral with the eigengap as published; two that are given k."""


def kernel_decoders(at: float) -> dict[str, Callable[[Float[Tensor, "N N"], int], Int[Tensor, " N"]]]:
    """Return all of them as functions of a kernel and the true k, for a cut of average linkage."""
    return {
        "linkage": lambda kernel, _: cut_at(average_linkage(kernel), at),
        "contraction": lambda kernel, _: contract_edges(kernel),
        "eigengap": lambda kernel, _: spectral_labels(kernel, eigengap(kernel), Generator().manual_seed(SEED)),
        "linkage-k": lambda kernel, k: cut_into(average_linkage(kernel), k),
        "spectral-k": lambda kernel, k: spectral_labels(kernel, k, Generator().manual_seed(SEED)),
    }
