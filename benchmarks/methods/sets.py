"""Methods on synthetic sets, with densities: filtering networks, ACT-ST, NCP, variational mixtures, spectral, flows.

`SOLVERS` has a constructor for each name that suites use as ``solver``: from the recorded settings and the largest
number of clusters of a set to the function that clusters one set. Constructors read weights, so they are called late.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from jaxtyping import Int
from sklearn.cluster import kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture
from torch import Generator, Tensor

from benchmarks.baselines import weights_path
from benchmarks.baselines.set_transformer import ActStModel
from benchmarks.data.synthetic import SyntheticSet
from benchmarks.methods.classical import cluster_given_k
from benchmarks.training import MODELS, SEED
from coterie.amortized.filtering import FilteringModel
from coterie.config import from_dict
from coterie.errors import InputError
from coterie.nn.density import FlowHead
from coterie.nn.model import to_tensors
from coterie.ops.gaussian_mixtures import Mixture, diagonal_log_prob, run_em, simplify
from coterie.pretrained.registry import load_pretrained

NO_LIMIT: Final = 1_000_000  # points of a set that go through a network where all of them should


@dataclass(frozen=True)
class Answer:
    """What a method finds in a set."""

    labels: Int[Tensor, " N"]
    log_likelihood: Callable[[], Tensor] | None = None
    """Mean log-density of the points; a function, since its time is not the method's."""


Solve: TypeAlias = Callable[[SyntheticSet], Answer]


def load_model(kind: str, weights: str, **changes: Any) -> Any:
    """Load a network by its method and its weights, some settings changed."""
    arrays, card = load_pretrained(weights_path(weights))
    model = MODELS[kind](replace(from_dict(MODELS[kind].Config, card["model"]), **changes))
    model.load_state_dict(to_tensors(arrays))
    return model.eval()


def solve_by_filtering(model: FilteringModel) -> Solve:
    """Cluster by a network that extracts one cluster per pass and has a density."""

    def solve(one: SyntheticSet) -> Answer:
        found = model.cluster(one.x, Generator().manual_seed(SEED))
        return Answer(found.labels, lambda: model.joint(one.x, found).logsumexp(dim=1).mean())

    return solve


def solve_by_act_st(model: ActStModel) -> Solve:
    """Cluster by ACT-ST, which predicts a whole mixture in one pass."""

    @torch.no_grad()
    def solve(one: SyntheticSet) -> Answer:
        x, valid = one.x.unsqueeze(0), torch.ones((1, len(one.x)), dtype=torch.bool)
        mixture = model.find(x, valid)
        labels = mixture.clusterings(x, valid)[0].labels
        return Answer(labels, lambda: mixture.joint(x).logsumexp(dim=2).mean())

    return solve


def _filtering(kind: str) -> Callable[..., Solve]:
    def prepare(_: int, *, weights: str, seed: int, **changes: Any) -> Solve:
        del seed  # recorded, and always SEED
        return solve_by_filtering(load_model(kind, weights, **changes))

    return prepare


def _act_st(_: int, *, weights: str) -> Solve:
    return solve_by_act_st(load_model("act-st", weights))


def _ncp(_: int, *, weights: str, n_samples: int, seed: int) -> Solve:
    model = load_model("ncp", weights, n_samples=n_samples)
    return lambda one: Answer(model.cluster(one.x, Generator().manual_seed(seed)).labels)


def _true_parameters(_: int) -> Solve:
    """Assign each point to its most probable true component."""

    def solve(one: SyntheticSet) -> Answer:
        if one.truth is None:
            raise InputError("The true parameters are known for mixtures of Gaussians only.")
        joint = one.truth.joint(one.x.unsqueeze(0)).squeeze(0)
        return Answer(joint.argmax(dim=1), lambda: joint.logsumexp(dim=1).mean())

    return solve


def _variational_mixture(_: int, **settings: Any) -> Solve:
    """Truncated variational inference of a Dirichlet process mixture (VBDPM)."""

    def solve(one: SyntheticSet) -> Answer:
        prior = settings.get("covariance_prior")
        per_feature = {} if prior is None else {"covariance_prior": np.full(one.x.shape[1], prior)}
        model = BayesianGaussianMixture(**{**settings, **per_feature})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            labels = model.fit_predict(one.x.double().numpy())

        def log_likelihood() -> Tensor:
            # scikit-learn's own score is an expectation over the posterior; the paper's is at its mean.
            weight, mean, variance = map(torch.from_numpy, (model.weights_, model.means_, model.covariances_))
            joint = weight.log() + diagonal_log_prob(one.x.double(), mean, variance.sqrt())
            return joint.logsumexp(dim=1).mean()

        return Answer(torch.from_numpy(labels), log_likelihood)

    return solve


def _refined_seeds(_: int, *, components: int, deviation: float, trust: float, steps: int, seed: int) -> Solve:
    """Apply our decoding to k-means++ centres instead of a network's clusters: shows what the network contributes."""

    def solve(one: SyntheticSet) -> Answer:
        centres, _ = kmeans_plusplus(one.x.numpy(), components, random_state=seed)
        deviations = torch.full((components, one.x.shape[1]), deviation)
        weight = torch.full((components,), 1 / components)
        start = Mixture(weight, torch.from_numpy(centres), deviations, deviations, trust)
        mixture = simplify(one.x, run_em(one.x, start, steps), steps=steps)
        joint = mixture.joint(one.x)
        return Answer(joint.argmax(dim=1), lambda: joint.logsumexp(dim=1).mean())

    return solve


def _spectral(_: int, *, affinity: str, random_state: int) -> Solve:
    """Spectral clustering, given the true number of clusters; one cluster needs no clustering."""

    def solve(one: SyntheticSet) -> Answer:
        if one.n_clusters == 1:
            return Answer(torch.zeros_like(one.y))
        labels = cluster_given_k("spectral", one.x.numpy(), one.n_clusters, random_state, affinity=affinity)
        return Answer(torch.from_numpy(labels))

    return solve


def _fitted_flows(_: int, **settings: Any) -> Solve:
    """Train one flow on the points of each true cluster: the density that amortisation should reach."""

    def solve(one: SyntheticSet) -> Answer:
        parts = [_fit_flow(one.x, one.y == cluster, **settings) for cluster in torch.unique(one.y)]
        joint = torch.stack(parts, dim=1)
        return Answer(joint.argmax(dim=1), lambda: joint.logsumexp(dim=1).mean())

    return solve


def _fit_flow(x: Tensor, member: Tensor, *, steps: int, learning_rate: float, width: int, seed: int) -> Tensor:
    """Joint log-density (N,) of all points with a cluster, after training a flow on the cluster's own points."""
    points = x[member]
    centre = points.mean(dim=0)
    scale = points.std(dim=0, correction=0).clamp(min=0.025)
    generator = Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(generator.get_state())
        flow = FlowHead(x.shape[1], 1, hidden=width)
    context = torch.zeros((1, 1))
    standard = ((points - centre) / scale).unsqueeze(0)
    optimiser = torch.optim.Adam(flow.parameters(), learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = -flow.log_prob(standard, context, generator).mean()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        log_density = flow.log_prob(((x - centre) / scale).unsqueeze(0), context, generator).squeeze(0)
    return log_density - scale.log().sum() + member.float().mean().log()


SOLVERS: Final[dict[str, Callable[..., Solve]]] = {
    "true-parameters": _true_parameters,
    "dac": _filtering("dac"),
    "amcp": _filtering("amcp"),
    "act-st": _act_st,
    "ncp": _ncp,
    "variational-mixture": _variational_mixture,
    "refined-seeds": _refined_seeds,
    "spectral": _spectral,
    "fitted-flows": _fitted_flows,
}
