"""Characters of alphabets that were not trained on: the experiments of ABC (Table 5) and of DAC (Tables 3, 4 and 8).

An encoder that was trained end to end inside an attention-based network costs nearly all of a step. Here it is frozen:
all training images, in four rotations and several distorted copies, are encoded once, and what follows the encoder is
trained anew for each network. Alphabets that the recipe of the weights holds out are held out here, too.

Seconds are processor seconds of one set; those of whole alphabets include encoding, those of small sets do not.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from statistics import mean
from typing import Any, Final, Literal, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from benchmarks.baselines.kcl_mcl import cluster_pairwise
from benchmarks.data.image_sets import OMNIGLOT_CLUSTERS, OMNIGLOT_POINTS, Alphabet, alphabets, character_sets
from benchmarks.data.tasks import OmniglotTasks
from benchmarks.lines import Line, Settings, stamp
from benchmarks.methods.classical import cluster_given_k
from benchmarks.methods.kernels import GIVEN_K, kernel_decoders
from benchmarks.suite import Job, Spec, Suite
from benchmarks.training import SEED, Network, train_network
from coterie.amortized.abc.config import AttentionBasedConfig
from coterie.amortized.abc.network import AttentionBasedModel
from coterie.amortized.dac.network import DacModel
from coterie.amortized.tasks.classes import QUARTER_ROTATIONS, Catalogue, Distortion, Instances
from coterie.checkpoint import load_checkpoint
from coterie.config import from_dict
from coterie.errors import InputError
from coterie.metrics import normalized_mutual_information
from coterie.nn.model import TaskBatch, to_tensors
from coterie.nn.vision import ElementEncoder
from coterie.pretrained.registry import load_pretrained
from coterie.recipes import TASKS, parse_recipe, read_recipe

EVALUATION: Final = "evaluation"
HELD_OUT: Final = "held back"
"""Alphabets of the training part that no network saw, on which choices are made; the name is that of results files."""
IMAGES_AT_ONCE: Final = 2048
WEIGHED_SETS: Final = 400  # sets in which pairs are counted, for the weight of pairs of one cluster
HELD_OUT_SETS: Final = 5
ENCODER_PREFIX: Final = "encoder."
Decode = Callable[[Any, int], Int[Tensor, " N"]]  # from what a method computes of a set and the true k to labels


@final
@dataclass(frozen=True, eq=False)
class Base:
    """The network that was trained end to end, split into its encoder and the rest."""

    config: AttentionBasedConfig
    encoder: Mapping[str, Tensor]  # weights of the encoder
    head: AttentionBasedModel  # the network for elements that are encoded already
    tasks: OmniglotTasks  # what it was trained on
    digest: str  # first digits of the SHA-256 of all weights

    @classmethod
    def load(cls, weights: str | Path) -> "Base":
        """Read weights that a recipe for Omniglot made, by name or path."""
        TASKS.setdefault("omniglot", OmniglotTasks)
        arrays, card = load_pretrained(weights)
        tasks = parse_recipe(card["recipe"]).tasks
        if not isinstance(tasks, OmniglotTasks):
            raise InputError(f"{str(weights)!r} was not trained on Omniglot; use weights of recipes/abc-omniglot.toml.")
        return cls.of(to_tensors(arrays), from_dict(AttentionBasedConfig, card["model"]), tasks)

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], config: AttentionBasedConfig, tasks: OmniglotTasks) -> "Base":
        """Split a network."""
        width = AttentionBasedModel(config).encoder.out_width
        head = AttentionBasedModel(replace(config, n_features=width, encoder="identity", image=None, views=1))
        own = {name: value for name, value in tensors.items() if not name.startswith(ENCODER_PREFIX)}
        head.load_state_dict(own)
        encoder = {name.removeprefix(ENCODER_PREFIX): tensors[name] for name in tensors if name not in own}
        digest = sha256(b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors)))
        return cls(config, encoder, head.eval(), tasks, digest.hexdigest()[:12])

    @property
    def width(self) -> int:
        """Features of an image."""
        return self.head.config.n_features

    @torch.no_grad()
    def features(self, pixels: Float[Tensor, "M D"], views: int = 1) -> Float[Tensor, "M E"]:
        """Encode images, averaging over several views of each."""
        config = self.config
        encoder = ElementEncoder(config.encoder, config.n_features, config.image, config.channels, views).eval()
        encoder.load_state_dict(self.encoder)
        return torch.cat([encoder(part.unsqueeze(0))[0] for part in torch.split(pixels, IMAGES_AT_ONCE)])

    def held_out(self) -> list[Alphabet]:
        """Alphabets for validation and calibration."""
        return alphabets("background", self.tasks.without)

    def held_out_sets(self, views: int, batches: int) -> list[TaskBatch]:
        """Sample sets of 100 images of those alphabets."""
        held_out = self.held_out()
        features = torch.cat([self.features(alphabet.pixels, views) for alphabet in held_out])
        instances = Instances(OMNIGLOT_POINTS, OMNIGLOT_CLUSTERS, "composition", 1.0)
        tasks = FeatureTasks(features.expand(1, 1, -1, -1), _catalogue(held_out), instances)
        generator = Generator().manual_seed(SEED + 1)
        return [tasks.sample(HELD_OUT_SETS, generator) for _ in range(batches)]


@final
@dataclass(frozen=True, eq=False)
class FeatureTasks:
    """Sets of encoded images of one alphabet each, every image as one of its distorted copies."""

    features: Float[Tensor, "A T M E"]  # of each copy, rotation and image
    catalogue: Catalogue
    instances: Instances

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Sample sets."""
        sample = self.instances.sample(self.catalogue, batch_size, generator)
        copies = torch.randint(len(self.features), sample.index.shape, generator=generator)
        return sample.to_batch(self.features[copies, sample.variant, sample.index].flatten(0, 1))

    def apart_per_together(self) -> float:
        """Ratio of pairs of different clusters to pairs of the same cluster."""
        labels = self.instances.sample(self.catalogue, WEIGHED_SETS, Generator().manual_seed(SEED)).labels
        together = float((labels.unsqueeze(2) == labels.unsqueeze(1)).float().mean())
        return (1 - together) / together


def _catalogue(members: Sequence[Alphabet]) -> Catalogue:
    groups = torch.cat([torch.full_like(alphabet.labels, alphabet.number) for alphabet in members])
    return Catalogue.of(torch.cat([alphabet.labels for alphabet in members]), groups)


def _training_tasks(base: Base, instances: Instances, folder: Path, copies: int) -> FeatureTasks:
    """Sample sets of the alphabets that the weights were trained on, their images encoded once and kept in a file."""
    held_out = {alphabet.name for alphabet in base.held_out()}
    learned = [alphabet for alphabet in alphabets("background") if alphabet.name not in held_out]
    path = folder / f"features-{base.digest}-{copies}.npy"
    if not path.is_file():
        _encode(base, torch.cat([alphabet.images for alphabet in learned]), copies, path)
    return FeatureTasks(torch.from_numpy(np.load(path, allow_pickle=False)), _catalogue(learned), instances)


def _encode(base: Base, images: Tensor, copies: int, path: Path) -> None:
    """Write the features of all copies as one array (A, T, M, E)."""
    generator = Generator().manual_seed(SEED)
    distortion = Distortion(base.tasks.max_degrees, base.tasks.max_stretch, base.tasks.max_shift)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".partial.npy")
    shape = (copies, QUARTER_ROTATIONS, len(images), base.width)
    features = np.lib.format.open_memmap(unfinished, "w+", np.dtype(np.float32), shape)
    for number in range(copies):
        for rotation in range(QUARTER_ROTATIONS):
            rotated = images.rot90(rotation, (2, 3)).float() / 255
            features[number, rotation] = base.features(distortion.apply(rotated, generator).flatten(1)).numpy()
        print(f"copy {number + 1} of {copies} encoded", flush=True)
    features.flush()
    unfinished.replace(path)


def trained(suite: Suite, base: Base, name: str) -> Any:
    """Train a network of the suite on encoded images, or resume from the run folder."""
    spec = suite.methods[name]
    network = Network.of(spec, n_features=base.width)
    tasks = _training_tasks(base, network.sampling, suite.run_folder, suite["copies"])
    if spec.get("balanced"):
        # The few pairs that are together count as much in all as the many that are apart, as published.
        network = replace(network, config=replace(network.config, pos_weight=tasks.apart_per_together()))
    folder = suite.run_folder / f"{base.digest}-{suite['copies']}-{name}-{network.training.steps}"
    held_out = base.held_out_sets(base.config.views, suite["calibration_batches"])
    return train_network(name, network, tasks, folder, held_out=held_out)


@dataclass(frozen=True)
class Prepared:
    """A method that is ready."""

    look: Callable[[Alphabet], Tensor]  # what is computed for each image of an alphabet by itself
    gather: Callable[[Tensor, Int[Tensor, " N"]], Any]
    """From that and the indices of some images to what is computed of them as a set."""
    decoders: Mapping[str, Decode]
    found: Settings = field(default_factory=dict)  # what was calibrated on held-out alphabets


def _by_kernel(base: Base, model: AttentionBasedModel, views: int, at: float) -> Prepared:
    @torch.no_grad()
    def look(alphabet: Alphabet) -> Tensor:
        return model.encode(base.features(alphabet.pixels, views).unsqueeze(0))[0]

    @torch.no_grad()
    def gather(embedded: Tensor, index: Tensor) -> Tensor:
        return model.kernel_from_encoded(embedded[index].unsqueeze(0))[0]

    return Prepared(look, gather, kernel_decoders(at), {"cut": at})


def _on_features(base: Base, decoders: Mapping[str, Decode], found: Settings | None = None) -> Prepared:
    look = partial(_features, base)
    return Prepared(look, lambda features, index: features[index], decoders, found or {})


def _features(base: Base, alphabet: Alphabet) -> Tensor:
    return base.features(alphabet.pixels, base.config.views)


@dataclass(frozen=True)
class Method:
    """What is recorded of a method, and how it is prepared."""

    settings: Settings
    decodings: Mapping[str, bool]  # names, and whether each is given k
    prepare: Callable[[], Prepared]


def end_to_end(suite: Suite, base: Base, __: str, spec: Spec) -> Method:
    """Use the network of the weights, with its own number of views or another one, for which it is calibrated."""
    views = spec.get("views", base.config.views)

    @torch.no_grad()
    def prepare() -> Prepared:
        if "views" not in spec:
            return _by_kernel(base, base.head, views, base.config.threshold)
        calibrated = base.head.calibrate(
            base.held_out_sets(views, suite["calibration_batches"]), normalized_mutual_information
        )
        return _by_kernel(base, base.head, views, calibrated.threshold)

    return Method({"weights": base.digest, "views": views}, GIVEN_K, prepare)


def head(suite: Suite, base: Base, name: str, spec: Spec) -> Method:
    """Use a network that is trained on the features of the encoder."""

    def prepare() -> Prepared:
        model = trained(suite, base, name)
        if isinstance(model, AttentionBasedModel):
            return _by_kernel(base, model, base.config.views, model.config.threshold)
        return _on_features(
            base, {way: _filter(model, way) for way in spec["decodings"]}, {"cut": model.config.threshold}
        )

    settings = {"weights": base.digest, "copies": suite["copies"], "steps": spec["train"]["steps"]}
    return Method(settings, dict.fromkeys(spec["decodings"], False) if "decodings" in spec else GIVEN_K, prepare)


def _filter(model: DacModel, decoding: Literal["kernel", "robust"]) -> Decode:
    """Use all points as anchors, or one after the other as published."""
    model = copy(model)
    model.config = replace(model.config, decoding=decoding, max_passes=100, max_points=1_000_000)
    return lambda features, _: model.cluster(features, Generator().manual_seed(SEED)).labels


def per_set(suite: Suite, base: Base, name: Any, spec: Spec) -> Method:
    """Use KCL or MCL: trained on each set anew, by what the pairwise network predicts of its pairs."""

    def prepare() -> Prepared:
        model = trained(suite, base, "pairwise")

        @torch.no_grad()
        def together(features: Tensor) -> Tensor:
            kernel: Tensor = model.kernel(features.unsqueeze(0))[0]
            return kernel

        def decode(features: Tensor, _: int) -> Tensor:
            options = {key: spec[key] for key in ("epochs", "restarts")}
            generator = Generator().manual_seed(SEED)
            return cluster_pairwise(features, together, spec["max_clusters"], name, generator, **options).labels

        return _on_features(base, {"training": decode})

    pairwise = head(suite, base, "pairwise", suite.methods["pairwise"]).settings
    settings = {**pairwise, "epochs": spec["epochs"], "restarts": spec["restarts"]}
    return Method(settings, {"training": False}, prepare)


def on_pixels(_: Suite, __: Base, ___: str, spec: Spec) -> Method:
    """Use a classical method, given k or a number that is large enough."""

    def decode(pixels: Tensor, k: int) -> Tensor:
        count = spec.get("n_clusters", k)
        if spec["cluster"] == "kmeans":
            return torch.from_numpy(cluster_given_k("kmeans", pixels.numpy(), count, SEED, **spec["options"]))
        gamma = 1 / pixels.shape[1]
        return torch.from_numpy(cluster_given_k("spectral", pixels.double().numpy(), count, SEED, gamma=gamma))

    decoding = "many" if "n_clusters" in spec else "k"
    prepared = Prepared(lambda alphabet: alphabet.pixels, lambda pixels, index: pixels[index], {decoding: decode})
    return Method(spec["settings"], {decoding: decoding == "k"}, lambda: prepared)


KINDS: Final[dict[str, Callable[[Suite, Base, str, Spec], Method]]] = {
    "end-to-end": end_to_end,
    "head": head,
    "per-set": per_set,
    "pixels": on_pixels,
}


def decodings(suite: Suite) -> Iterator[Job]:
    """Derive one job per method, task and group of alphabets; each line is about one decoding.

    In the task "fixed" the number of clusters is given, as published.
    """
    base = cache(partial(Base.load, suite["weights"]))()
    for name, spec in suite.methods.items():
        method = KINDS[spec["kind"]](suite, base, name, spec)
        method = replace(method, prepare=cache(method.prepare))
        for which in suite["alphabets"]:
            for task in spec.get("tasks", list(suite["tasks"])):
                lines = [
                    blank_line(suite, which, task, name, decoding, given_k, method.settings)
                    for decoding, given_k in method.decodings.items()
                    if given_k or task != "fixed"
                ]
                shown = partial(base.held_out) if which == HELD_OUT else partial(alphabets, "evaluation")
                yield Job(lines, partial(_measure, method, shown))


def blank_line(
    suite: Suite, which: str, task: str, method: str, decoding: str, given_k: bool, settings: Settings
) -> Line:
    """Start a line; "alphabets" are those of the evaluation, or held-out ones of training."""
    line = {"suite": suite["suite"], "alphabets": which, "task": task}
    line |= {"n_sets": 1 if task == "whole" else suite["n_sets"], "sets_seed": suite["tasks"][task]}
    line |= {"method": method, "reading": decoding, "told": given_k, "settings": dict(settings), "found": {}}
    return {**line, "nmi": {}, "k_error": {}, "k_found": {}, "seconds": {}, **stamp()}


def _measure(method: Method, shown: Callable[[], list[Alphabet]], pending: Sequence[Line]) -> Iterator[Line]:
    prepared = method.prepare()
    scores = {alphabet.name: _scores(prepared, alphabet, pending) for alphabet in shown()}
    for line in pending:
        of_alphabets = {name: each[line["reading"]] for name, each in scores.items()}
        digits = {"nmi": 5, "k_error": 3, "k_found": 3, "seconds": 4}
        means = {
            key: {name: round(mean(each[key]), count) for name, each in of_alphabets.items()}
            for key, count in digits.items()
        }
        yield line | {"found": prepared.found, **means}


def _scores(prepared: Prepared, alphabet: Alphabet, pending: Sequence[Line]) -> dict[str, dict[str, list[float]]]:
    """Score each decoding on the sets of one alphabet."""
    task, n_sets, seed = (pending[0][key] for key in ("task", "n_sets", "sets_seed"))
    began = time.process_time()
    looked = prepared.look(alphabet)
    looking = time.process_time() - began if task == "whole" else 0.0
    scores: dict[str, dict[str, list[float]]] = {
        line["reading"]: {key: [] for key in ("nmi", "k_error", "k_found", "seconds")} for line in pending
    }
    for one in character_sets(alphabet, task, n_sets, seed):
        began = time.process_time()
        computed = prepared.gather(looked, one.index)
        before = looking + time.process_time() - began
        for decoding, each in scores.items():
            began = time.process_time()
            labels = prepared.decoders[decoding](computed, one.n_clusters)
            each["seconds"].append(before + time.process_time() - began)
            each["nmi"].append(normalized_mutual_information(one.labels.numpy(), labels.numpy()))
            each["k_found"].append(len(torch.unique(labels)))
            each["k_error"].append(abs(each["k_found"][-1] - one.n_clusters))
    return scores


def snapshots(suite: Suite) -> Iterator[Job]:
    """Derive one job per state that was saved while the recipe was trained: Figure 3 of the ABC paper.

    The run folder has copies of ``state.safetensors``. Each is measured at one view and at the cut that networks have
    before calibration.
    """
    TASKS.setdefault("omniglot", OmniglotTasks)
    recipe = read_recipe(suite["recipe"])
    if not isinstance(recipe.tasks, OmniglotTasks) or not isinstance(recipe.model, AttentionBasedConfig):
        raise InputError(f"{suite['recipe']!r} is not a recipe of an attention-based network for Omniglot.")
    states = [load_checkpoint(path) for path in suite.run_folder.glob("*.safetensors")]
    for arrays, card in sorted(states, key=lambda state: int(state[1]["step"])):
        weights = {name.removeprefix("weights."): arrays[name] for name in arrays if name.startswith("weights.")}
        base = Base.of(to_tensors(weights), replace(recipe.model, views=1), recipe.tasks)
        method = end_to_end(suite, base, suite["method"], {})
        method = replace(method, settings={"step": int(card["step"])})
        pairs = method.decodings.items()
        lines = [blank_line(suite, HELD_OUT, "varying", suite["method"], *pair, method.settings) for pair in pairs]
        yield Job(lines, partial(_measure, method, base.held_out))
