"""Attention-based clustering of points on circles: Figures 1 and 2 of its paper."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial

import torch
from torch import Generator, Tensor

from benchmarks.lines import Line, stamp
from benchmarks.methods.classical import cluster_given_k
from benchmarks.suite import Job, Spec, Suite
from benchmarks.training import SEED, Network, train_network
from coterie.amortized.abc.network import AttentionBasedModel
from coterie.amortized.tasks.synthetic import CircleTasks
from coterie.metrics import adjusted_rand_index
from coterie.nn.model import TaskBatch, build

SPECTRAL = "spectral"
GIVEN_K = "k known"
SETS_AT_ONCE = 50  # sets whose kernels are computed together


def lengths(suite: Suite) -> Iterator[Job]:
    """Derive one job per method: each line is about sets of one kind and length, decoded in one way."""
    for name, spec in suite.methods.items():
        lines = [
            {
                "suite": suite["suite"],
                "sets": kind,
                "sets_seed": seed,
                "length": length,
                "method": name,
                "decoding": decoding,
                "settings": {} if name == SPECTRAL else _settings(suite, spec),
                "ari": [0.0] * suite["n_sets"],
                "k_found": [],
                "seconds": 0.0,
                **stamp(),
            }
            for kind, seed in suite["sets"].items()
            for length in suite["lengths"]
            for decoding in ([GIVEN_K] if name == SPECTRAL else suite["decodings"])
        ]
        yield Job(lines, partial(_measure, suite, cache(partial(trained, suite, name))))


def _settings(suite: Suite, spec: Spec) -> Spec:
    network = Network.of(spec)
    return {
        "steps": network.training.steps,
        "batch_size": network.batch_size,
        "trained_length": suite["trained_length"],
        "schedule": network.training.schedule,
        "seed": SEED,
    }


def trained(suite: Suite, name: str) -> AttentionBasedModel:
    """Train a network of the suite, or read it from the run folder."""
    network = Network.of(suite.methods[name])
    folder = suite.run_folder / f"{name}-{network.training.steps}"
    tasks = CircleTasks(suite["trained_length"], suite["circles"])
    model: AttentionBasedModel = train_network(name, network, tasks, folder)
    return model


def kernels(model: AttentionBasedModel, x: Tensor) -> Tensor:
    """Return the kernel of each set."""
    with torch.no_grad():
        return torch.cat([model.kernel(part) for part in torch.split(x, SETS_AT_ONCE)])


def decode(suite: Suite, model: AttentionBasedModel, decoding: str, found: Tensor) -> list[Tensor]:
    """Decode clusters from kernels."""
    # Settings of ours that the paper leaves open, such as the cut, have their defaults.
    config = replace(model.config, **suite["decodings"][decoding])
    reader = build(AttentionBasedModel, config, Generator().manual_seed(SEED))
    return [reader.decode_kernel(kernel, Generator().manual_seed(SEED)) for kernel in found]


def spectral(x: Tensor, k: int) -> list[Tensor]:
    """Cluster by scikit-learn's spectral clustering with its defaults, given k."""
    return [torch.from_numpy(cluster_given_k("spectral", points.double().numpy(), k, SEED)) for points in x]


def sample_circles(suite: Suite, kind: str, length: int) -> TaskBatch:
    """Sample the sets of one kind and length; "crossing" circles must overlap."""
    tasks = CircleTasks(length, suite["circles"], overlapping=kind == "crossing")
    return tasks.sample(suite["n_sets"], Generator().manual_seed(suite["sets"][kind] + length))


def _measure(suite: Suite, train: Callable[[], AttentionBasedModel], pending: Sequence[Line]) -> Iterator[Line]:
    model = None if pending[0]["method"] == SPECTRAL else train()
    for blank in pending:
        batch = sample_circles(suite, blank["sets"], blank["length"])
        began = time.process_time()
        if model is None:
            labels = spectral(batch.x, suite["circles"])
        else:
            labels = decode(suite, model, blank["decoding"], kernels(model, batch.x))
        seconds = time.process_time() - began
        pairs = zip(batch.labels, labels, strict=True)
        yield blank | {
            "ari": [round(adjusted_rand_index(truth.numpy(), own.numpy()), 4) for truth, own in pairs],
            "k_found": [len(torch.unique(own)) for own in labels],
            "seconds": round(seconds, 2),
        }
