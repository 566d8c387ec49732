"""Methods that Coterie is compared with and does not offer; ``register`` lets recipes train them."""

from pathlib import Path
from typing import Any

from benchmarks.baselines.cc import CcModel
from benchmarks.baselines.mice import MiceModel
from benchmarks.baselines.moco import MocoModel
from benchmarks.baselines.ncp import NcpModel
from benchmarks.baselines.set_transformer import ActStModel, SetTransformerModel
from benchmarks.baselines.swav import SwavModel
from benchmarks.data.tasks import EmbeddingTasks, OmniglotTasks
from coterie.nn.model import ClusterModel, SetModel
from coterie.recipes import NETWORKS, TASKS

MODELS: dict[str, type[ClusterModel[Any]]] = {
    "act-st": ActStModel,
    "cc": CcModel,
    "mice": MiceModel,
    "moco": MocoModel,
    "ncp": NcpModel,
    "set-transformer": SetTransformerModel,
    "swav": SwavModel,
}
"""Every baseline network by the name in checkpoints."""

WEIGHTS = Path(__file__).parent / "weights"  # folder of the weights of baselines


def weights_path(name: str) -> str | Path:
    """Return the file of a baseline's weights, or the name itself if there is none."""
    path = WEIGHTS / f"{name}.safetensors"
    return path if path.exists() else name


def register() -> None:
    """Let recipes use the baseline networks and the tasks of benchmark images."""
    NETWORKS.update({name: kind for name, kind in MODELS.items() if issubclass(kind, SetModel)})
    TASKS.update({"embedded-images": EmbeddingTasks, "omniglot": OmniglotTasks})
