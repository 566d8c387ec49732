"""One file per method: its Config, and its Module with ``loss()`` and ``cluster()``."""

from typing import Any

from coterie.models.act_st import ActStModel
from coterie.models.amcp import AmcpModel
from coterie.models.attention_based import AttentionBasedModel
from coterie.models.base import ClusterModel
from coterie.models.cc import CcModel
from coterie.models.clam import ClamModel
from coterie.models.dac import DacModel
from coterie.models.mice import MiceModel
from coterie.models.moco import MocoModel
from coterie.models.ncp import NcpModel
from coterie.models.set_transformer import SetTransformerModel
from coterie.models.swav import SwavModel
from coterie.models.tcc import TccModel

MODELS: dict[str, type[ClusterModel[Any]]] = {
    "act-st": ActStModel,
    "amcp": AmcpModel,
    "attention-based": AttentionBasedModel,
    "cc": CcModel,
    "clam": ClamModel,
    "dac": DacModel,
    "mice": MiceModel,
    "moco": MocoModel,
    "ncp": NcpModel,
    "set-transformer": SetTransformerModel,
    "swav": SwavModel,
    "tcc": TccModel,
}
"""Every model by the name that checkpoints carry."""
