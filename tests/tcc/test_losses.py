"""Contrastive losses: definitions, bounds, invariances, and frequencies of samples."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot

from coterie.errors import ConfigError
from coterie.tcc import losses

SIZES = {"n": st.integers(1, 9), "k": st.integers(1, 6), "seed": st.integers(0, 1000)}
PI = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
SAMPLES = 20_000


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


def unit(*shape: int, seed: int = 0) -> Tensor:
    return normalize(normal(*shape, seed=seed), dim=-1)


@given(m=st.integers(0, 7), temperature=st.floats(0.05, 5), **SIZES)
def test_info_nce_is_the_cross_entropy_of_the_key(n: int, k: int, seed: int, m: int, temperature: float) -> None:
    query, key, negatives = normal(n, k, seed=seed), normal(n, k, seed=seed + 1), normal(m, k, seed=seed + 2)
    loss = losses.info_nce(query, key, negatives, temperature)
    for row in range(n):
        logits = torch.cat((key[row : row + 1], negatives)) @ query[row] / temperature
        torch.testing.assert_close(loss[row], cross_entropy(logits, torch.tensor(0)))
    assert (loss >= 0).all()


@pytest.mark.parametrize("m", [0, 1, 16])
def test_info_nce_of_constant_embeddings_is_the_logarithm_of_the_number_of_candidates(m: int) -> None:
    same = unit(1, 5)
    loss = losses.info_nce(same.expand(4, -1), same.expand(4, -1), same.expand(m, -1), 0.1)
    torch.testing.assert_close(loss, torch.full((4,), math.log(m + 1), dtype=torch.float64))


@given(seed=st.integers(0, 100), size=st.sampled_from([1.0, 1e3]))
def test_info_nce_ignores_masked_negatives(seed: int, size: float) -> None:
    query, key, negatives = unit(4, 3, seed=seed), unit(4, 3, seed=seed + 1), unit(6, 3, seed=seed + 2)
    masked = torch.rand((4, 6), generator=seeded(seed)) < 0.5
    masked[:, 2] = True
    masked[0] = True
    loss = losses.info_nce(query, key, negatives, 0.5, masked)
    changed = negatives.clone()
    changed[2] = size
    assert torch.equal(losses.info_nce(query, key, changed, 0.5, masked), loss)
    for row in range(4):
        alone = losses.info_nce(query[row : row + 1], key[row : row + 1], negatives[~masked[row]], 0.5)
        torch.testing.assert_close(loss[row : row + 1], alone)
    assert loss[0] == 0  # only the key is left


@pytest.mark.parametrize("in_batch_negatives", [True, False])
def test_instance_negatives_are_the_queue_and_the_other_keys(in_batch_negatives: bool) -> None:
    query, key, queue = unit(2, 4, 5), unit(2, 4, 5, seed=1), unit(2, 3, 5, seed=2)
    loss = losses.instance_info_nce(query, key, queue, 0.5, in_batch_negatives=in_batch_negatives)
    for problem in range(2):
        for row in range(4):
            others = key[problem, torch.arange(4) != row] if in_batch_negatives else key[problem, :0]
            negatives = torch.cat((queue[problem], others))
            alone = losses.info_nce(query[problem, row : row + 1], key[problem, row : row + 1], negatives, 0.5)
            torch.testing.assert_close(loss[problem, row : row + 1], alone)
    assert not losses.instance_info_nce(query, key, queue[:, :0], 0.5, in_batch_negatives=False).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1e-6, 1e-30])
def test_cold_gumbel_samples_are_one_hot_with_frequencies_pi(temperature: float, dtype: torch.dtype) -> None:
    samples = losses.gumbel_softmax(PI.log().to(dtype).expand(SAMPLES, -1), temperature, seeded())
    # A few samples are nearly equal for two clusters, hence the quantile.
    assert samples.amax(dim=1).quantile(0.01) > 1 - 1e-6
    assert chisquare(samples.sum(dim=0).numpy(), (SAMPLES * PI).numpy(), sum_check=False).pvalue > 0.01


@pytest.mark.parametrize("temperature", [0.3, 1e-3])
def test_gumbel_samples_and_their_gradients_are_finite(temperature: float) -> None:
    rows = [[0.0, -torch.inf, -torch.inf], [-200.0, 0.0, -1e4], [-1.1, -1.1, -1.1]] * 1000
    log_pi = torch.tensor(rows, requires_grad=True)
    samples = losses.gumbel_softmax(log_pi, temperature, seeded())
    (slope,) = torch.autograd.grad((samples * normal(*samples.shape).float()).sum(), log_pi)
    assert samples.isfinite().all()
    assert slope.isfinite().all()
    assert (samples[::3, 0] == 1).all()


@pytest.mark.usefixtures("untouched_random_state")
def test_gumbel_samples_depend_on_the_generator_only() -> None:
    log_pi = PI.log().expand(5, -1)
    one, other = (losses.gumbel_softmax(log_pi, 0.5, seeded(seed)) for seed in (0, 1))
    assert torch.equal(losses.gumbel_softmax(log_pi, 0.5, seeded()), one)
    assert not torch.equal(one, other)
    assert not torch.equal(one[0], one[1])


@given(e=st.integers(2, 5), **SIZES)
def test_representations_are_unit_vectors_invariant_to_order_and_duplicates(n: int, k: int, seed: int, e: int) -> None:
    weight, embedding = normal(n, k, seed=seed).softmax(dim=1), unit(n, e, seed=seed + 1)
    r = losses.cluster_representations(weight, embedding)
    torch.testing.assert_close(r.norm(dim=1), torch.ones(k, dtype=torch.float64))
    order = torch.randperm(n, generator=seeded(seed))
    torch.testing.assert_close(losses.cluster_representations(weight[order], embedding[order]), r, atol=1e-9, rtol=1e-9)
    twice = losses.cluster_representations(weight.repeat(2, 1), embedding.repeat(2, 1))
    torch.testing.assert_close(twice, r, atol=1e-12, rtol=1e-12)


def test_one_hot_assignments_give_normalised_class_means() -> None:
    embedding, label = unit(12, 5), torch.arange(12) % 3
    r = losses.cluster_representations(one_hot(label).double(), embedding)
    means = torch.stack([embedding[label == cluster].mean(dim=0) for cluster in range(3)])
    torch.testing.assert_close(r, normalize(means, dim=1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weight", [0.0, 1e-45, 1e-30, 1e-15])
def test_an_empty_cluster_has_a_zero_representation_without_gradient(weight: float, dtype: torch.dtype) -> None:
    weights = torch.tensor([[1.0, weight], [1.0, weight]]).to(dtype).requires_grad_()
    embedding = unit(2, 3).to(dtype).requires_grad_()
    r = losses.cluster_representations(weights, embedding)
    slopes = torch.autograd.grad((r * normal(2, 3, seed=1).to(dtype)).sum(), [weights, embedding])
    assert r.isfinite().all()
    assert all(slope.isfinite().all() for slope in slopes)
    full, sparse = r.norm(dim=1).tolist()
    assert full == pytest.approx(1)
    assert sparse in (0, pytest.approx(1))
    assert weight > 0 or (sparse == 0 and not slopes[0][:, 1].any())
    cancelling = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
    assert not losses.cluster_representations(torch.ones(2, 1), cancelling).any()


@pytest.mark.parametrize(("clusters", "dim"), [(1, 3), (2, 1), (4, 3), (10, 16)])
def test_centres_are_equidistant_unit_vectors(clusters: int, dim: int) -> None:
    centres = losses.max_mahalanobis_centres(clusters, dim)
    expected = torch.full((clusters, clusters), -1 / max(clusters - 1, 1)).fill_diagonal_(1.0)
    torch.testing.assert_close(centres @ centres.mT, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("clusters", "dim", "least"), [(10, 8, 9), (1, 0, 1), (0, 5, 1), (2, 0, 1)])
def test_too_many_equidistant_centres_raise_an_error(clusters: int, dim: int, least: int) -> None:
    message = f"n_clusters={clusters} equidistant centres need at least 1 cluster and {least} dimensions; got dim={dim}"
    with pytest.raises(ConfigError, match=message):
        losses.max_mahalanobis_centres(clusters, dim)


@given(**SIZES)
def test_kl_is_zero_for_uniform_assignments_only(n: int, k: int, seed: int) -> None:
    log_pi = normal(n, k, seed=seed).log_softmax(dim=1)
    kl = losses.kl_to_uniform(log_pi)
    torch.testing.assert_close(kl, (log_pi.exp() * (k * log_pi.exp()).log()).sum(dim=1), atol=1e-12, rtol=1e-10)
    uniform = torch.full((1, k), -math.log(k), dtype=torch.float64)
    assert losses.kl_to_uniform(uniform).abs() < 1e-12
    away = (log_pi - uniform).abs().amax(dim=1) > 1e-3
    assert (kl > -1e-12).all()
    assert (kl[away] > 1e-8).all()
    assert (kl <= math.log(k) + 1e-12).all()


def test_kl_of_one_hot_assignments_is_finite() -> None:
    log_pi = torch.tensor([[0.0, -torch.inf], [-1e30, 0.0]], requires_grad=True)
    kl = losses.kl_to_uniform(log_pi)
    (slope,) = torch.autograd.grad(kl.sum(), log_pi)
    torch.testing.assert_close(kl, torch.full((2,), math.log(2)))
    assert slope.isfinite().all()


@given(**SIZES)
def test_balance_loss_is_log_k_minus_the_entropy_of_the_mean(n: int, k: int, seed: int) -> None:
    pi = normal(n, k, seed=seed).softmax(dim=1)
    mean = pi.mean(dim=0)
    torch.testing.assert_close(losses.balance_loss(pi), math.log(k) + (mean * mean.log()).sum(), atol=1e-12, rtol=1e-10)
    assert -1e-12 < losses.balance_loss(pi) <= losses.kl_to_uniform(pi.log()).mean() + 1e-12  # entropy is concave


def test_balance_loss_of_one_hot_assignments() -> None:
    one_hot_pi = torch.eye(4, dtype=torch.float64)
    assert losses.balance_loss(one_hot_pi).abs() < 1e-12
    collapsed = one_hot_pi[:1].repeat(5, 1).requires_grad_()
    (slope,) = torch.autograd.grad(losses.balance_loss(collapsed), collapsed)
    assert losses.balance_loss(collapsed).item() == pytest.approx(math.log(4))
    assert slope.isfinite().all()


@given(seed=st.integers(0, 1000), rows=st.integers(1, 5))
def test_the_elbo_is_below_the_likelihood(seed: int, rows: int) -> None:
    """Eq. 1 with K = 3 enumerated; the bound is tight for the posterior."""
    log_likelihood = 3 * normal(rows, 3, seed=seed)
    total = torch.logsumexp(log_likelihood - math.log(3), dim=1)

    def elbo(log_q: Tensor) -> Tensor:
        return (log_q.exp() * log_likelihood).sum(dim=1) - losses.kl_to_uniform(log_q)

    assert (elbo(normal(rows, 3, seed=seed + 1).log_softmax(dim=1)) <= total + 1e-12).all()
    torch.testing.assert_close(elbo(log_likelihood.log_softmax(dim=1)), total)


@given(steps=st.integers(0, 5), **SIZES)
def test_rows_of_sinkhorn_codes_sum_to_one(n: int, k: int, seed: int, steps: int) -> None:
    codes = losses.sinkhorn_codes(normal(n, k, seed=seed).requires_grad_(), 0.05, steps)
    assert (codes >= 0).all()
    assert not codes.requires_grad
    torch.testing.assert_close(codes.sum(dim=1), torch.ones(n, dtype=torch.float64))


def test_sinkhorn_codes_are_balanced_and_equal_those_of_swav() -> None:
    scores = unit(64, 8) @ unit(5, 8, seed=1).mT
    converged = losses.sinkhorn_codes(scores, 0.05, 1000)
    torch.testing.assert_close(converged.sum(dim=0), torch.full((5,), 64 / 5, dtype=torch.float64))
    codes = (scores / 0.05).softmax(dim=1)
    for _ in range(3):
        codes = codes / codes.sum(dim=0) / 5
        codes = codes / codes.sum(dim=1, keepdim=True) / 64
    torch.testing.assert_close(losses.sinkhorn_codes(scores, 0.05, 3), 64 * codes)
    assert losses.sinkhorn_codes(1e4 * scores, 0.05, 3).isfinite().all()


def test_sinkhorn_codes_do_not_collapse_and_are_sharper_for_small_epsilon() -> None:
    scores = 0.1 * unit(60, 3)
    scores[:, 0] += 1  # all rows prefer the first cluster
    counts = one_hot(losses.sinkhorn_codes(scores, 0.05, 50).argmax(dim=1), 3).sum(dim=0)
    assert counts.min() >= 15
    sharp, flat = (losses.sinkhorn_codes(scores, epsilon, 200).amax(dim=1).mean() for epsilon in (0.01, 1.0))
    assert sharp > 0.9
    assert flat < 0.4


def test_gradients_equal_finite_differences() -> None:
    one, other = normal(4, 3).requires_grad_(), normal(4, 3, seed=1).requires_grad_()
    masked = torch.tensor([[True, False, True], [False, False, True]])
    query, key, negatives = (normal(rows, 4, seed=rows).requires_grad_() for rows in (2, 2, 3))
    check = torch.autograd.gradcheck
    assert check(lambda q, k, n: losses.info_nce(q, k, n, 0.7, masked), (query, key, negatives))
    assert check(lambda x: losses.gumbel_softmax(x.log_softmax(dim=1), 0.7, seeded()), one)
    assert check(lambda weight, x: losses.cluster_representations(weight.softmax(dim=1), x), (one, other))
    assert check(lambda x: losses.kl_to_uniform(x.log_softmax(dim=1)), one)
    assert check(lambda x: losses.balance_loss(x.softmax(dim=1)), one)
