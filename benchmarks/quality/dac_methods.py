"""What DAC's experiments compare: each method takes one set and says who belongs together in it.

Methods are prepared when they are first needed, since most of them read weights.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from sklearn.cluster import SpectralClustering, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture
from torch import Generator, Tensor

from benchmarks.baselines import weights_path
from benchmarks.baselines.ncp import NcpModel
from benchmarks.baselines.set_transformer import ActStModel
from benchmarks.quality.dac_sets import LabelledSet
from benchmarks.quality.records import Setting
from coterie.amortized.dac.network import DacModel
from coterie.amortized.filtering import FilteringModel
from coterie.amortized.refinement import STEPS, TRUST
from coterie.config import from_dict
from coterie.errors import InputError
from coterie.nn.density import FlowHead
from coterie.nn.model import SetModel
from coterie.ops.gaussian_mixtures import Mixture, diagonal_log_prob, refine, simplify
from coterie.pretrained.registry import load_pretrained

SEED: Final = 0
"""Of whatever a method draws, for every set anew."""
NO_LIMIT: Final = 1_000_000
"""Points of a set that go through the network where all are meant."""
EXPECTED_DEVIATION: Final = 0.25
"""Deviation that a start without a network is given: the generator's median."""
EXPECTED_SPREAD: Final = 3.0
"""Deviation of the generator's means."""
FLOW_STEPS: Final = 500
FLOW_RATE: Final = 5e-3
FLOW_WIDTH: Final = 128

Kind = TypeVar("Kind", bound=SetModel)


@dataclass(frozen=True)
class Answer:
    """What a method says of a set."""

    labels: Int[Tensor, " N"]
    log_likelihood: Callable[[], Tensor] | None = None
    """Mean log-density of the points under what was found; a function, since its time is not the method's."""


Solve = Callable[[LabelledSet], Answer]


@dataclass(frozen=True)
class Method:
    """A method by its name in the records, with all that was set, and how to make it ready."""

    name: str
    settings: dict[str, Setting]
    prepare: Callable[[], Solve]


def load_model(kind: type[Kind], weights: str, **changes: Any) -> Kind:
    """Network with the weights of that name, some settings changed."""
    tensors, card = load_pretrained(weights_path(weights))
    model = kind(replace(from_dict(kind.Config, card["model"]), **changes))
    model.load_state_dict(tensors)
    return model.eval()


def true_parameters() -> Method:
    """Each point goes to its most probable true component."""

    def solve(one: LabelledSet) -> Answer:
        if one.truth is None:
            raise InputError("The true parameters are known of mixtures of Gaussians only.")
        joint = one.truth.joint(one.x.unsqueeze(0)).squeeze(0)
        return Answer(joint.argmax(dim=1), lambda: joint.logsumexp(dim=1).mean())

    return Method("true-parameters", {}, lambda: solve)


def dac(weights: str) -> Method:
    """DAC with our decoding."""
    return filtering("dac", DacModel, weights, decoding="robust")


def dac_faithful_decoding(weights: str) -> Method:
    """DAC with the published decoding: every point goes through the network, and each pass keeps what it takes."""
    return filtering("dac-faithful-decoding", DacModel, weights, decoding="faithful", max_points=NO_LIMIT)


def filtering(name: str, kind: type[FilteringModel], weights: str, **settings: Setting) -> Method:
    """A method that takes one cluster after the other out of a set."""
    return Method(
        name, {"weights": weights, "seed": SEED, **settings}, lambda: solver(load_model(kind, weights, **settings))
    )


def solver(model: FilteringModel) -> Solve:
    """How a model that filters, and has a density, answers."""

    def solve(one: LabelledSet) -> Answer:
        found = model.cluster(one.x, Generator().manual_seed(SEED))
        return Answer(found.labels, lambda: model.joint(one.x, found).logsumexp(dim=1).mean())

    return solve


def act_st(weights: str) -> Method:
    """ACT-ST: a whole mixture from one pass."""
    return Method("act-st", {"weights": weights}, lambda: act_st_solver(load_model(ActStModel, weights)))


def act_st_solver(model: ActStModel) -> Solve:
    """How ACT-ST answers."""

    @torch.no_grad()
    def solve(one: LabelledSet) -> Answer:
        x, valid = one.x.unsqueeze(0), torch.ones((1, len(one.x)), dtype=torch.bool)
        mixture = model.find(x, valid)
        labels = mixture.clusterings(x, valid)[0].labels
        return Answer(labels, lambda: mixture.joint(x).logsumexp(dim=2).mean())

    return solve


def ncp(weights: str, n_samples: int) -> Method:
    """NCP: the most probable of several labellings, drawn point by point."""

    def prepare() -> Solve:
        model = load_model(NcpModel, weights, n_samples=n_samples)
        return lambda one: Answer(model.cluster(one.x, Generator().manual_seed(SEED)).labels)

    return Method(f"ncp-{n_samples}", {"weights": weights, "n_samples": n_samples, "seed": SEED}, prepare)


def vbdpm(max_clusters: int) -> Method:
    """Truncated variational inference of a Dirichlet process mixture, with twice the components that there can be."""
    return _vbdpm("vbdpm", vbdpm_settings(max_clusters))


def vbdpm_informed(max_clusters: int) -> Method:
    """The same, but what is expected of variances and means is the generator's, not the moments of the whole set."""
    informed: dict[str, Setting] = {
        "covariance_prior": EXPECTED_DEVIATION**2,
        # How much wider components are spread than they are wide, squared; else distant ones are made wider.
        "mean_precision_prior": (EXPECTED_DEVIATION / EXPECTED_SPREAD) ** 2,
    }
    return _vbdpm("vbdpm-informed", vbdpm_settings(max_clusters) | informed)


def vbdpm_settings(max_clusters: int) -> dict[str, Setting]:
    """Parameters of scikit-learn's BayesianGaussianMixture."""
    return {
        "weight_concentration_prior_type": "dirichlet_process",
        "covariance_type": "diag",
        "n_components": 2 * max_clusters,
        "max_iter": 1000,
        "tol": 1e-4,
        "random_state": SEED,
    }


def _vbdpm(name: str, settings: dict[str, Setting]) -> Method:
    def solve(one: LabelledSet) -> Answer:
        prior = settings.get("covariance_prior")
        each = {} if prior is None else {"covariance_prior": np.full(one.x.shape[1], prior)}
        model = BayesianGaussianMixture(**{**settings, **each})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # that the last step was reached is no reason to stop
            labels = model.fit_predict(one.x.double().numpy())

        def log_likelihood() -> Tensor:
            # scikit-learn's own score is an expectation over the posterior; the paper's is at its mean.
            share, mean, variance = map(torch.from_numpy, (model.weights_, model.means_, model.covariances_))
            joint = share.log() + diagonal_log_prob(one.x.double(), mean, variance.sqrt())
            return joint.logsumexp(dim=1).mean()

        return Answer(torch.from_numpy(labels), log_likelihood)

    return Method(name, settings, lambda: solve)


def refined_seeds(max_clusters: int) -> Method:
    """What our decoding makes of k-means++ centres instead of the network's clusters: tells what the network brings."""
    count = 2 * max_clusters
    settings: dict[str, Setting] = {
        "components": count,
        "deviation": EXPECTED_DEVIATION,
        "trust": TRUST,
        "steps": STEPS,
        "seed": SEED,
    }

    def solve(one: LabelledSet) -> Answer:
        centres, _ = kmeans_plusplus(one.x.numpy(), count, random_state=SEED)
        deviation = torch.full((count, one.x.shape[1]), EXPECTED_DEVIATION)
        start = Mixture(torch.full((count,), 1 / count), torch.from_numpy(centres), deviation, deviation, TRUST)
        mixture = simplify(one.x, refine(one.x, start, STEPS), steps=STEPS)
        joint = mixture.joint(one.x)
        return Answer(joint.argmax(dim=1), lambda: joint.logsumexp(dim=1).mean())

    return Method("refined-seeds", settings, lambda: solve)


def spectral(affinity: str) -> Method:
    """Spectral clustering that is told the true number of clusters; one cluster needs no clustering."""
    settings: dict[str, Setting] = {"affinity": affinity, "random_state": SEED}

    def solve(one: LabelledSet) -> Answer:
        if one.n_clusters == 1:
            return Answer(torch.zeros_like(one.y))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Graph is not fully connected")  # clusters apart are what is looked for
            model = SpectralClustering(one.n_clusters, **settings)
            return Answer(torch.from_numpy(model.fit_predict(one.x.numpy()).astype("int64")))

    return Method(f"spectral-{affinity.replace('_', '-')}", settings, lambda: solve)


def fitted_flows() -> Method:
    """One flow for each true cluster, trained on its points: the density that amortisation is to reach."""
    settings: dict[str, Setting] = {"steps": FLOW_STEPS, "learning_rate": FLOW_RATE, "width": FLOW_WIDTH, "seed": SEED}

    def solve(one: LabelledSet) -> Answer:
        joint = torch.stack([_fit_flow(one.x, one.y == cluster) for cluster in torch.unique(one.y)], dim=1)
        return Answer(joint.argmax(dim=1), lambda: joint.logsumexp(dim=1).mean())

    return Method("fitted-flows", settings, lambda: solve)


def _fit_flow(x: Tensor, member: Tensor) -> Tensor:
    """Log-density (N,) of all points together with a cluster, after a flow was trained on the cluster's own."""
    points = x[member]
    centre = points.mean(dim=0)
    scale = points.std(dim=0, correction=0).clamp(min=EXPECTED_DEVIATION / 10)
    generator = Generator().manual_seed(SEED)
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(generator.get_state())
        flow = FlowHead(x.shape[1], 1, hidden=FLOW_WIDTH)
    context = torch.zeros((1, 1))
    standard = ((points - centre) / scale).unsqueeze(0)
    optimiser = torch.optim.Adam(flow.parameters(), FLOW_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, FLOW_STEPS)
    for _ in range(FLOW_STEPS):
        optimiser.zero_grad()
        loss = -flow.log_prob(standard, context, generator).mean()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        log_density = flow.log_prob(((x - centre) / scale).unsqueeze(0), context, generator).squeeze(0)
    return log_density - scale.log().sum() + member.float().mean().log()
