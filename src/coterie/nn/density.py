"""Densities of a cluster given its context: Gaussian, normalising flow, variational autoencoder."""

import math
from abc import ABC, abstractmethod
from typing import Literal, final, get_args

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn
from torch.nn.functional import elu, linear, softplus
from zuko.nn import MaskedMLP
from zuko.transforms import AutoregressiveTransform, ComposedTransform, DependentTransform, MonotonicAffineTransform

from coterie.errors import ConfigError

Density = Literal["gaussian", "flow", "statistician", "none"]
Likelihood = Literal["gaussian", "bernoulli"]

LEAST_DEVIATION = 1e-6


class DensityHead(nn.Module, ABC):
    """Density of points given a context, the numbers by which the network describes a cluster."""

    context_width: int  # numbers per cluster, P
    width: int  # approximate numbers per point in memory at once

    @abstractmethod
    def deterministic_log_prob(self, x: Float[Tensor, "B N D"], context: Float[Tensor, "B P"]) -> Float[Tensor, "B N"]:
        """Compute the log-density of each point in the cluster of its set, or a lower bound of it."""

    def log_prob(
        self,
        x: Float[Tensor, "B N D"],
        context: Float[Tensor, "B P"],
        generator: Generator,  # noqa: ARG002  (only some densities are random)
    ) -> Float[Tensor, "B N"]:
        """Compute or estimate the same for training."""
        return self.deterministic_log_prob(x, context)


@final
class GaussianHead(DensityHead):
    """A normal density with a diagonal covariance (DAC, Eq. 13); the context is the mean and raw deviations."""

    def __init__(self, n_features: int) -> None:
        super().__init__()
        _check_positive(n_features=n_features)
        self.context_width = 2 * n_features
        self.width = n_features

    def parameters_of(self, context: Float[Tensor, "*B P"]) -> tuple[Float[Tensor, "*B D"], Float[Tensor, "*B D"]]:
        """Return the mean and standard deviations of contexts."""
        return _mean_and_deviation(context)

    def deterministic_log_prob(self, x: Float[Tensor, "B N D"], context: Float[Tensor, "B P"]) -> Float[Tensor, "B N"]:
        """Compute the log-density of each point."""
        return _normal_log_prob(x, *self.parameters_of(context.unsqueeze(1)))


@final
class FlowHead(DensityHead):
    """A masked autoregressive flow (DAC, Eq. 14): affine blocks map points to standard normal noise.

    In each block a coordinate is scaled and shifted by a network of two hidden layers that reads the coordinates before
    it and the context; blocks alternate the order of the coordinates. Three details follow zuko and not the authors'
    code: the first coordinate of every block depends on the context instead of learned constants; the log-scale is kept
    within ±log 1000 by a smooth bound, where the code has a softplus scale; and one coordinate, where the code fails,
    gives a Gaussian.
    """

    def __init__(self, n_features: int, context_width: int = 128, blocks: int = 4, hidden: int = 128) -> None:
        super().__init__()
        _check_positive(n_features=n_features, context_width=context_width, blocks=blocks, hidden=hidden)
        self.n_features = n_features
        self.context_width = context_width
        self.width = hidden
        self.blocks = nn.ModuleList(
            _AffineBlock(n_features, context_width, hidden, reverse=i % 2 == 1) for i in range(blocks)
        )

    def transform(self, context: Float[Tensor, "B P"]) -> ComposedTransform:
        """Return the map from points (B, N, D) to noise, with its inverse and log-determinant."""
        return ComposedTransform(*(block(context) for block in self.blocks))

    def deterministic_log_prob(self, x: Float[Tensor, "B N D"], context: Float[Tensor, "B P"]) -> Float[Tensor, "B N"]:
        """Compute the log-density of each point."""
        noise, log_determinant = self.transform(context).call_and_ladj(x)
        log_density: Tensor = _standard_log_prob(noise) + log_determinant
        return log_density

    def sample(self, context: Float[Tensor, "B P"], n: int, generator: Generator) -> Float[Tensor, "B n D"]:
        """Sample that many points of each cluster."""
        shape = (len(context), n, self.n_features)
        points: Tensor = self.transform(context).inv(_randn(shape, context, generator))
        return points


@final
class StatisticianHead(DensityHead):
    """A variational autoencoder whose posterior, prior and decoder see the context (DAC, Section 6.1).

    The prior of the code is a flow with ``hidden`` wide layers; the autoencoder's are twice as wide. ``log_prob`` is a
    lower bound estimated with one sample of the code; ``per_feature`` divides it by the number of features, as
    published, so that it does not outweigh the other terms of a loss. ``deterministic_log_prob`` is never divided,
    since clusters compete by it.
    """

    def __init__(
        self,
        n_features: int,
        context_width: int,
        latent: int = 32,
        hidden: int = 128,
        likelihood: Likelihood = "gaussian",
        *,
        per_feature: bool = True,
    ) -> None:
        super().__init__()
        _check_positive(n_features=n_features, context_width=context_width, latent=latent, hidden=hidden)
        if likelihood not in get_args(Likelihood):
            raise ConfigError(f"likelihood={likelihood!r} must be 'gaussian' or 'bernoulli'.")
        self.n_features = n_features
        self.context_width = context_width
        self.width = max(n_features, 2 * hidden)
        self.latent = latent
        self.likelihood = likelihood
        self.per_feature = per_feature
        self.encoder = _ContextNetwork(n_features, context_width, 2 * hidden, 2 * latent)
        self.prior = FlowHead(latent, context_width, hidden=hidden)
        self.decoder = _ContextNetwork(
            latent, context_width, 2 * hidden, n_features * (2 if likelihood == "gaussian" else 1)
        )

    def log_prob(
        self, x: Float[Tensor, "B N D"], context: Float[Tensor, "B P"], generator: Generator
    ) -> Float[Tensor, "B N"]:
        """Estimate the lower bound of each point, per feature unless ``per_feature`` is off."""
        bound = self.bound(x, context, generator)
        return bound / self.n_features if self.per_feature else bound

    def deterministic_log_prob(self, x: Float[Tensor, "B N D"], context: Float[Tensor, "B P"]) -> Float[Tensor, "B N"]:
        """Compute the bound over all features with the posterior mean as the code."""
        code, deviation = self.posterior(x, context)
        peak = -(deviation.log() + 0.5 * math.log(2 * math.pi)).sum(dim=2)
        return self.decoded_log_prob(x, code, context) + self.prior.deterministic_log_prob(code, context) - peak

    def bound(
        self, x: Float[Tensor, "B N D"], context: Float[Tensor, "B P"], generator: Generator
    ) -> Float[Tensor, "B N"]:
        """Estimate the evidence lower bound of each point, over all features, with one sample of its code."""
        mean, deviation = self.posterior(x, context)
        code = mean + deviation * _randn(mean.shape, mean, generator)
        divergence = _normal_log_prob(code, mean, deviation) - self.prior.log_prob(code, context, generator)
        return self.decoded_log_prob(x, code, context) - divergence

    def sample(self, context: Float[Tensor, "B P"], n: int, generator: Generator) -> Float[Tensor, "B n D"]:
        """Sample codes of each cluster from the prior and decode them, to probabilities of bits or means."""
        decoded: Tensor = self.decoder(self.prior.sample(context, n, generator), context)
        return decoded.sigmoid() if self.likelihood == "bernoulli" else _mean_and_deviation(decoded)[0]

    def posterior(
        self, x: Float[Tensor, "B N D"], context: Float[Tensor, "B P"]
    ) -> tuple[Float[Tensor, "B N Z"], Float[Tensor, "B N Z"]]:
        """Return the mean and standard deviations of the code of each point."""
        return _mean_and_deviation(self.encoder(x, context))

    def decoded_log_prob(
        self, x: Float[Tensor, "B _ D"], code: Float[Tensor, "B _ Z"], context: Float[Tensor, "B P"]
    ) -> Float[Tensor, "B N"]:
        """Compute the log-likelihood of each point given its code."""
        decoded: Tensor = self.decoder(code, context)
        if self.likelihood == "gaussian":
            return _normal_log_prob(x, *_mean_and_deviation(decoded))
        return (x * decoded - softplus(decoded)).sum(dim=-1)


def density_head(
    density: Density, n_features: int, context_width: int, hidden: int, likelihood: Likelihood
) -> DensityHead | None:
    """Build a density head; None for "none". Only "statistician" uses the likelihood."""
    match density:
        case "gaussian":
            return GaussianHead(n_features)
        case "flow":
            return FlowHead(n_features, context_width, hidden=hidden)
        case "statistician":
            return StatisticianHead(n_features, context_width, hidden=hidden, likelihood=likelihood)
        case "none":
            return None


class _AffineBlock(nn.Module):
    """One affine block of a flow."""

    def __init__(self, n_features: int, context_width: int, hidden: int, *, reverse: bool) -> None:
        super().__init__()
        self.n_features = n_features
        order = torch.arange(n_features)
        self.network = MaskedMLP(
            _dependencies(order.flip(0) if reverse else order, context_width).repeat_interleave(2, dim=0),
            hidden_features=(hidden, hidden),
            activation=nn.ELU,
        )

    def forward(self, context: Float[Tensor, "B P"]) -> AutoregressiveTransform:
        """Return the transform of points (B, N, D) given a context."""
        first, *rest = self.network
        weight = first.mask * first.weight
        # The context's part of the first layer is computed once per set, not once per point.
        from_context = linear(context, weight[:, self.n_features :], first.bias).unsqueeze(1)

        def given_earlier(x: Tensor) -> DependentTransform:
            values = linear(x, weight[:, : self.n_features]) + from_context
            for layer in rest:
                values = layer(values)
            move, log_scale = values.reshape(*x.shape, 2).unbind(-1)
            return DependentTransform(MonotonicAffineTransform(move, log_scale), 1)

        return AutoregressiveTransform(given_earlier, self.n_features)


class _ContextNetwork(nn.Module):
    """A network with two hidden ELU layers; the context is added to the first."""

    def __init__(self, in_width: int, context_width: int, hidden: int, out_width: int) -> None:
        super().__init__()
        self.first = nn.Linear(in_width, hidden)
        self.first_context = nn.Linear(context_width, hidden, bias=False)
        self.rest = nn.Sequential(nn.Linear(hidden, hidden), nn.ELU(), nn.Linear(hidden, out_width))

    def forward(self, x: Float[Tensor, "B N X"], context: Float[Tensor, "B P"]) -> Float[Tensor, "B N Y"]:
        """Apply the network to each point of each set."""
        result: Tensor = self.rest(elu(self.first(x) + self.first_context(context).unsqueeze(1)))
        return result


def _dependencies(order: Tensor, context_width: int) -> Bool[Tensor, "D DP"]:
    """Return which coordinates and context numbers each coordinate may depend on."""
    on_context = torch.ones((len(order), context_width), dtype=torch.bool)
    return torch.cat((order.unsqueeze(1) > order, on_context), dim=1)


def _mean_and_deviation(raw: Tensor) -> tuple[Tensor, Tensor]:
    mean, width = raw.chunk(2, dim=-1)
    return mean, softplus(width) + LEAST_DEVIATION


def _normal_log_prob(x: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    return _standard_log_prob((x - mean) / deviation) - deviation.log().sum(dim=-1)


def _standard_log_prob(noise: Tensor) -> Tensor:
    return -0.5 * (noise.square().sum(dim=-1) + noise.shape[-1] * math.log(2 * math.pi))


def _randn(shape: tuple[int, ...], like: Tensor, generator: Generator) -> Tensor:
    return torch.randn(shape, generator=generator, device=like.device, dtype=like.dtype)


def _check_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ConfigError(f"{name}={size} must be at least 1.")
