"""One file per method: its Config, and its Module with ``loss()`` and ``cluster()``."""

from typing import Any

from coterie.models.base import ClusterModel
from coterie.models.clam import ClamModel
from coterie.models.dac import DacModel

MODELS: dict[str, type[ClusterModel[Any]]] = {"clam": ClamModel, "dac": DacModel}
"""Every model by the name that checkpoints carry."""
