"""The scikit-learn face: thin classes that hold parameters and results."""

from pathlib import Path

from coterie.checkpoint import load_checkpoint
from coterie.errors import WeightsError
from coterie.estimators.amcp import AMCP
from coterie.estimators.attention_based import AttentionBasedClustering
from coterie.estimators.base import Clusterer
from coterie.estimators.clam import ClAM
from coterie.estimators.coterie import Coterie
from coterie.estimators.dac import DAC
from coterie.estimators.tcc import TCC

ESTIMATORS: dict[str, type[Clusterer]] = {
    "coterie": Coterie,
    "clam": ClAM,
    "dac": DAC,
    "attention-based": AttentionBasedClustering,
    "amcp": AMCP,
    "tcc": TCC,
}
"""Every estimator by the name of its method."""


def load_model(path: str | Path) -> Clusterer:
    """Read a saved estimator of whatever method.

    Parameters
    ----------
    path : str or Path
        A file that an estimator's ``save`` wrote.
    """
    _, card = load_checkpoint(path)
    method = card.get("method")
    if method not in ESTIMATORS:
        raise WeightsError(
            f"{str(path)!r} holds a model of the unknown method {method!r}; this version knows: "
            f"{', '.join(ESTIMATORS)}. Install the version of Coterie that wrote it."
        )
    return ESTIMATORS[method].load(path)
