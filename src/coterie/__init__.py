"""Coterie: clustering that is learned instead of configured."""

from typing import TYPE_CHECKING

from coterie.methods import import_object

if TYPE_CHECKING:
    from coterie.amortized.abc.estimator import AttentionBasedClustering
    from coterie.amortized.amcp.estimator import AMCP
    from coterie.amortized.dac.estimator import DAC
    from coterie.clam.estimator import ClAM
    from coterie.judged.estimator import Coterie
    from coterie.methods import load
    from coterie.tcc.estimator import TCC

__version__ = "0.2.0"
__all__ = ["AMCP", "DAC", "TCC", "AttentionBasedClustering", "ClAM", "Coterie", "__version__", "load"]

# Public names and where they are defined: importing the package imports neither torch nor scikit-learn.
_HOMES = {
    "AMCP": "coterie.amortized.amcp.estimator",
    "AttentionBasedClustering": "coterie.amortized.abc.estimator",
    "ClAM": "coterie.clam.estimator",
    "Coterie": "coterie.judged.estimator",
    "DAC": "coterie.amortized.dac.estimator",
    "TCC": "coterie.tcc.estimator",
    "load": "coterie.methods",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return import_object(f"{_HOMES[name]}:{name}", name)


def __dir__() -> list[str]:
    return sorted(__all__)
