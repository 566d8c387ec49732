"""Coterie: clustering that is learned instead of configured."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.estimators.amcp import AMCP
    from coterie.estimators.attention_based import AttentionBasedClustering
    from coterie.estimators.clam import ClAM
    from coterie.estimators.coterie import Coterie
    from coterie.estimators.dac import DAC
    from coterie.estimators.tcc import TCC

__version__ = "0.1.0"
__all__ = ["AMCP", "DAC", "TCC", "AttentionBasedClustering", "ClAM", "Coterie", "__version__"]

# Public names and where they live; torch is imported when one of them is first used.
_HOMES = {
    "AMCP": "coterie.estimators.amcp",
    "AttentionBasedClustering": "coterie.estimators.attention_based",
    "ClAM": "coterie.estimators.clam",
    "Coterie": "coterie.estimators.coterie",
    "DAC": "coterie.estimators.dac",
    "TCC": "coterie.estimators.tcc",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
