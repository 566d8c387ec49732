"""Networks that are compared on hand-written characters, trained on what one encoder makes of the images.

    python -m benchmarks.quality.omniglot_models --weights runs/abc-omniglot-v1.safetensors [--networks additive,dac-af]

An encoder that was trained end to end, inside the attention-based network of the weights, costs nearly all of a step.
Here it is frozen: all images to learn from, in four quarter turns and several distorted copies, are encoded once, and
what comes after the encoder is trained anew for each network. Alphabets that the weights' recipe holds back are held
back here, too. Training can be stopped and goes on when it is called again. All on one thread.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from benchmarks.data.tasks import OmniglotTasks
from benchmarks.quality import networks
from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.networks import SEED, Network, n_parameters, one_cycle
from benchmarks.quality.omniglot_sets import CLUSTERS, N_POINTS, Alphabet, alphabets
from coterie.amortized.abc.network import AttentionBasedConfig, AttentionBasedModel, Compatibility
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel
from coterie.amortized.tasks.classes import QUARTER_TURNS, Catalogue, Distortion, Instances
from coterie.base import one_thread
from coterie.config import from_dict
from coterie.errors import InputError
from coterie.nn.model import SetModel, TaskBatch
from coterie.nn.vision import ElementEncoder
from coterie.pretrained.registry import load_pretrained
from coterie.recipes import recipe_from

WEIGHTS: Final = "abc-omniglot-v1"
RUN_FOLDER: Final = Path(tempfile.gettempdir()) / "coterie-omniglot"
ANY_WIDTH: Final = 1
"""Features in the settings of networks, until those of the encoder are known."""
COPIES: Final = 6
"""Distorted copies of each image in each quarter turn."""
IMAGES_AT_ONCE: Final = 2048
WEIGHED_SETS: Final = 400
"""Sets in which pairs are counted, where those of one cluster are to weigh as much as the others."""
HELD_BACK_BATCHES: Final = 20
HELD_BACK_SETS: Final = 5
"""Sets of a batch."""
OF_ENCODER: Final = "encoder."
"""What the names of the encoder's weights begin with."""


@final
@dataclass(frozen=True, eq=False)
class Base:
    """The network that was trained end to end, in two: its encoder, and what reads the features."""

    config: AttentionBasedConfig
    """Of the network as a whole."""
    encoder: Mapping[str, Tensor]
    """Weights of the encoder."""
    head: AttentionBasedModel
    """The network for elements that are encoded already."""
    tasks: OmniglotTasks
    """What it was trained on."""
    digest: str
    """First digits of the SHA-256 of all weights."""

    @property
    def width(self) -> int:
        """Features of an image."""
        return self.head.config.n_features

    @property
    def distortion(self) -> Distortion:
        """How images were distorted while it was trained."""
        return Distortion(self.tasks.turn_by, self.tasks.stretched, self.tasks.shifted)

    @torch.no_grad()
    def features(self, pixels: Float[Tensor, "M D"], views: int = 1) -> Float[Tensor, "M E"]:
        """What the encoder makes of images, looking at each so many times."""
        config = self.config
        encoder = ElementEncoder(config.encoder, config.n_features, config.image, config.channels, views).eval()
        encoder.load_state_dict(self.encoder)
        return torch.cat([encoder(part.unsqueeze(0))[0] for part in torch.split(pixels, IMAGES_AT_ONCE)])

    def held_back(self) -> list[Alphabet]:
        """Alphabets to validate and to calibrate with."""
        return alphabets("background", self.tasks.without)


def load_base(weights: str | Path) -> Base:
    """Read weights that a recipe for Omniglot made, by name or path."""
    tensors, card = load_pretrained(weights)
    tasks = recipe_from(card["recipe"]).tasks
    if not isinstance(tasks, OmniglotTasks):
        raise InputError(f"{str(weights)!r} was not trained on Omniglot; use weights of recipes/abc-omniglot.toml.")
    return base_of(tensors, from_dict(AttentionBasedConfig, card["model"]), tasks)


def base_of(tensors: Mapping[str, Tensor], config: AttentionBasedConfig, tasks: OmniglotTasks) -> Base:
    """The network with these weights, in two."""
    width = AttentionBasedModel(config).encoder.out_width
    head = AttentionBasedModel(replace(config, n_features=width, encoder="identity", image=None, views=1))
    head.load_state_dict({name: value for name, value in tensors.items() if not name.startswith(OF_ENCODER)})
    encoder = {name.removeprefix(OF_ENCODER): value for name, value in tensors.items() if name.startswith(OF_ENCODER)}
    digest = sha256(b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors)))
    return Base(config, encoder, head.eval(), tasks, digest.hexdigest()[:12])


@final
@dataclass(frozen=True, eq=False)
class FeatureTasks:
    """Sets of encoded images of one alphabet each, every image as one of its copies."""

    features: Float[Tensor, "A T M E"]
    """Of each copy, quarter turn and image."""
    catalogue: Catalogue
    instances: Instances

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Draw that many sets."""
        draw = self.instances.draw(self.catalogue, batch_size, generator)
        copy = torch.randint(len(self.features), draw.index.shape, generator=generator)
        return draw.filled(self.features[copy, draw.variant, draw.index].flatten(0, 1))


def training_tasks(base: Base, instances: Instances, folder: Path, copies: int) -> FeatureTasks:
    """Sets of the alphabets that the weights were trained on, their images encoded once and kept in the folder."""
    held_back = {alphabet.name for alphabet in base.held_back()}
    learned = [alphabet for alphabet in alphabets("background") if alphabet.name not in held_back]
    path = folder / f"features-{base.digest}-{copies}.npy"
    if not path.is_file():
        _encode(base, torch.cat([alphabet.images for alphabet in learned]), copies, path)
    features = torch.from_numpy(np.load(path, allow_pickle=False))
    return FeatureTasks(features, _catalogue(learned), instances)


def held_back_sets(base: Base, views: int) -> list[TaskBatch]:
    """Sets of 100 images of the alphabets that were held back, each looked at so many times."""
    held_back = base.held_back()
    features = torch.cat([base.features(alphabet.pixels, views) for alphabet in held_back])
    instances = Instances((N_POINTS, N_POINTS), CLUSTERS, "composition", 1.0)
    tasks = FeatureTasks(features.expand(1, 1, -1, -1), _catalogue(held_back), instances)
    generator = Generator().manual_seed(SEED + 1)
    return [tasks.sample(HELD_BACK_SETS, generator) for _ in range(HELD_BACK_BATCHES)]


def _drawn(points: tuple[int, int], clusters: tuple[int, int]) -> Instances:
    """As in ABC's Algorithm 1, a letter that is turned being another."""
    return Instances(points, clusters, "composition", 1.0, QUARTER_TURNS)


def _catalogue(members: Sequence[Alphabet]) -> Catalogue:
    groups = torch.cat([torch.full_like(alphabet.labels, alphabet.number) for alphabet in members])
    return Catalogue.of(torch.cat([alphabet.labels for alphabet in members]), groups)


def _encode(base: Base, images: Tensor, copies: int, path: Path) -> None:
    """Write the features of all copies as one array (A, T, M, E)."""
    generator = Generator().manual_seed(SEED)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".partial.npy")
    shape = (copies, QUARTER_TURNS, len(images), base.width)
    features = np.lib.format.open_memmap(unfinished, "w+", np.dtype(np.float32), shape)
    for copy in range(copies):
        for turn in range(QUARTER_TURNS):
            turned = images.rot90(turn, (2, 3)).float() / 255
            features[copy, turn] = base.features(base.distortion.applied(turned, generator).flatten(1)).numpy()
        print(f"copy {copy + 1} of {copies} encoded", flush=True)
    features.flush()
    unfinished.replace(path)


def _network(kind: type[SetModel], config: Any, steps: int, points: tuple[int, int] = (100, 250)) -> Network[SetModel]:
    return Network(kind, config, one_cycle(steps, evaluate_every=500), batch_size=8, instances=_drawn(points, CLUSTERS))


def _published(compatibility: Compatibility, steps: int) -> Network[SetModel]:
    """Network and sets as published."""
    config = AttentionBasedConfig.faithful(ANY_WIDTH, compatibility=compatibility)
    return replace(_network(AttentionBasedModel, config, steps), instances=_drawn((100, 100), (5, 35)))


# As published, with the anchor only shown, the loss stayed where it began in a short trial.
_ANCHORED: Final = DacConfig(
    ANY_WIDTH,
    filtering="anchored",
    anchor_position="latent",
    anchoring="compared",
    anchors=8,
    density="none",
    width=128,
    depth=2,
    mask_depth=1,
    decoding="kernel",
)
_ADDITIVE: Final = AttentionBasedConfig(ANY_WIDTH, compatibility="additive")
NETWORKS: Final[Mapping[str, Network[SetModel]]] = MappingProxyType(
    {
        "multiplicative": _network(AttentionBasedModel, AttentionBasedConfig(ANY_WIDTH), 6000),
        # Additive attention costs as much as it does per pair: sets are as small as published.
        "additive": _network(AttentionBasedModel, _ADDITIVE, 2000, points=(100, 100)),
        "pairwise": _network(AttentionBasedModel, replace(_ADDITIVE, depth=0), 4000, points=(100, 100)),
        "faithful": _published("multiplicative", 10_000),
        "faithful-additive": _published("additive", 600),
        "dac-af": replace(_network(DacModel, _ANCHORED, 3000, points=(100, 200)), batch_size=4),
    }
)
BALANCED: Final = ("faithful", "faithful-additive")
"""Those in which the few pairs that are together count as much in all as the many that are apart, as published."""


def trained(name: str, base: Base, folder: Path, *, steps: int | None = None, copies: int = COPIES) -> SetModel:
    """A network after all its steps; those that the folder has are not taken again."""
    network = NETWORKS[name].with_steps(steps)
    tasks = training_tasks(base, network.checked_instances(), folder, copies)
    config = replace(network.config, n_features=base.width)
    if name in BALANCED:
        config = replace(config, pos_weight=_apart_for_each_together(tasks))
    run_folder = folder / f"{base.digest}-{copies}-{name}-{network.training.steps}"
    held_back = held_back_sets(base, base.config.views)
    return networks.trained(name, replace(network, config=config), tasks, run_folder, held_back=held_back)


def _apart_for_each_together(tasks: FeatureTasks) -> float:
    """Pairs that are apart over those that are together, in sets as they are drawn."""
    drawn = tasks.instances.draw(tasks.catalogue, WEIGHED_SETS, Generator().manual_seed(SEED)).labels
    together = float((drawn.unsqueeze(2) == drawn.unsqueeze(1)).float().mean())
    return (1 - together) / together


def add_base(parser: argparse.ArgumentParser) -> None:
    """Let a command be told which weights to start from, and where to keep what is made of them."""
    parser.add_argument("--weights", default=WEIGHTS, help="name or path (default: %(default)s)")
    parser.add_argument(
        "--run-folder", type=Path, default=RUN_FOLDER, help="of features and training (default: %(default)s)"
    )


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.omniglot_models", description=__doc__)
    parser.add_argument("--networks", default=",".join(NETWORKS), help="names (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="of each (default: its own number)")
    parser.add_argument("--copies", type=int, default=COPIES, help="of each image (default: %(default)s)")
    add_base(parser)
    options = parser.parse_args(arguments)

    def work() -> None:
        base = load_base(options.weights)
        for name in named(options.networks, NETWORKS, "network"):
            model = trained(name, base, options.run_folder, steps=options.steps, copies=options.copies)
            print(f"{name}: {n_parameters(model):,} numbers, {model.config}", flush=True)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
