"""Contrastive losses and what goes into them: their bounds, what they do not depend on, and draws as often as asked."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot

from coterie.errors import ConfigError
from coterie.tcc.losses import (
    balance,
    cluster_representations,
    gumbel_softmax,
    info_nce,
    kl_to_uniform,
    nt_xent,
    spread_centres,
    swapped_codes,
    told_apart,
)

SIZES = {"n": st.integers(1, 9), "k": st.integers(1, 6), "seed": st.integers(0, 1000)}
PI = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
DRAWS = 20_000
LIKELY = 0.01
"""Share of right programs that a test of frequencies would refuse; seeds are fixed, so this one passes always."""


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


def unit(*shape: int, seed: int = 0) -> Tensor:
    return normalize(normal(*shape, seed=seed), dim=-1)


def memberships(n: int, k: int, seed: int) -> Tensor:
    return normal(n, k, seed=seed).softmax(dim=1)


@given(m=st.integers(0, 7), temperature=st.floats(0.05, 5), **SIZES)
def test_info_nce_is_the_cross_entropy_of_the_key(n: int, k: int, seed: int, m: int, temperature: float) -> None:
    query, key, others = normal(n, k, seed=seed), normal(n, k, seed=seed + 1), normal(m, k, seed=seed + 2)
    loss = info_nce(query, key, others, temperature)
    for row in range(n):
        logits = torch.cat((key[row : row + 1], others)) @ query[row] / temperature
        torch.testing.assert_close(loss[row], cross_entropy(logits, torch.tensor(0)))
    assert (loss >= 0).all()


@pytest.mark.parametrize("m", [0, 1, 16])
def test_info_nce_of_constant_embeddings_is_the_logarithm_of_the_number_of_candidates(m: int) -> None:
    same = unit(1, 5)
    loss = info_nce(same.expand(4, -1), same.expand(4, -1), same.expand(m, -1), 0.1)
    torch.testing.assert_close(loss, torch.full((4,), math.log(m + 1), dtype=torch.float64))


@given(seed=st.integers(0, 100), size=st.sampled_from([1.0, 1e3]))
def test_info_nce_does_not_see_what_is_masked(seed: int, size: float) -> None:
    query, key, others = unit(4, 3, seed=seed), unit(4, 3, seed=seed + 1), unit(6, 3, seed=seed + 2)
    masked = torch.rand((4, 6), generator=seeded(seed)) < 0.5
    masked[:, 2] = True
    masked[0] = True
    loss = info_nce(query, key, others, 0.5, masked)
    changed = others.clone()
    changed[2] = size
    assert torch.equal(info_nce(query, key, changed, 0.5, masked), loss)
    for row in range(4):
        alone = info_nce(query[row : row + 1], key[row : row + 1], others[~masked[row]], 0.5)
        torch.testing.assert_close(loss[row : row + 1], alone)
    assert loss[0] == 0  # nothing but the key is left


def test_the_queue_of_the_same_cluster_is_masked_as_in_tcc() -> None:
    """Row i of the queue, oldest round first, is of cluster i mod K."""
    clusters, rounds = 3, 4
    query, key = unit(clusters, 5), unit(clusters, 5, seed=1)
    queue = unit(rounds, clusters, 5, seed=2)
    masked = torch.eye(clusters, dtype=torch.bool).repeat(1, rounds)
    loss = info_nce(query, key, queue.flatten(0, 1), 1.0, masked)
    other = queue.clone()
    other[:, 1] = unit(rounds, 5, seed=3)
    changed = info_nce(query, key, other.flatten(0, 1), 1.0, masked) != loss
    assert changed.tolist() == [True, False, True]


def test_gradients_of_info_nce_are_right_beside_masks() -> None:
    masked = torch.tensor([[True, False, True], [False, False, True]])
    query, key, others = (normal(rows, 4, seed=rows).requires_grad_() for rows in (2, 2, 3))
    assert torch.autograd.gradcheck(lambda q, k, o: info_nce(q, k, o, 0.7, masked), (query, key, others))
    (slope,) = torch.autograd.grad(info_nce(query, key, others, 0.7, masked).sum(), others)
    assert not slope[2].any()


@pytest.mark.parametrize("in_batch", [True, False])
def test_rows_are_told_apart_from_others_but_not_from_their_own_key(in_batch: bool) -> None:
    """Of several kinds of descriptions at once, each compared with its own kind."""
    query, key, remembered = unit(2, 4, 5), unit(2, 4, 5, seed=1), unit(2, 3, 5, seed=2)
    found = told_apart(query, key, remembered, 0.5, in_batch=in_batch)
    for kind in range(2):
        for row in range(4):
            beside = key[kind, torch.arange(4) != row] if in_batch else key[kind, :0]
            others = torch.cat((remembered[kind], beside))
            alone = info_nce(query[kind, row : row + 1], key[kind, row : row + 1], others, 0.5)
            torch.testing.assert_close(found[kind, row : row + 1], alone)
    nothing = told_apart(query, key, remembered[:, :0], 0.5, in_batch=False)
    assert not nothing.any()  # nothing to be told apart from is no surprise


@given(temperature=st.floats(0.05, 2), **SIZES)
def test_nt_xent_is_that_of_a_table_of_all_pairs(n: int, k: int, seed: int, temperature: float) -> None:
    first, second = unit(n, k, seed=seed), unit(n, k, seed=seed + 1)
    both = torch.cat((first, second))
    table = (both @ both.mT / temperature).fill_diagonal_(-torch.inf)
    partner = torch.arange(2 * n).roll(n)
    torch.testing.assert_close(nt_xent(first, second, temperature), cross_entropy(table, partner))
    torch.testing.assert_close(nt_xent(second, first, temperature), nt_xent(first, second, temperature))


def test_nt_xent_of_constant_embeddings() -> None:
    same = unit(1, 5).expand(4, -1)
    torch.testing.assert_close(nt_xent(same, same, 0.5), torch.tensor(math.log(7), dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1e-6, 1e-30])
def test_without_temperature_a_draw_is_one_cluster(temperature: float, dtype: torch.dtype) -> None:
    drawn = gumbel_softmax(PI.log().to(dtype).expand(DRAWS, -1), temperature, seeded())
    # Of so many draws a few are nearly equal for two clusters, hence the quantile.
    assert drawn.amax(dim=1).quantile(0.01) > 1 - 1e-6
    assert chisquare(drawn.sum(dim=0).numpy(), (DRAWS * PI).numpy(), sum_check=False).pvalue > LIKELY


@pytest.mark.parametrize("temperature", [0.3, 1e-3])
def test_draws_are_finite_and_so_are_their_gradients(temperature: float) -> None:
    rows = [[0.0, -torch.inf, -torch.inf], [-200.0, 0.0, -1e4], [-1.1, -1.1, -1.1]] * 1000
    log_prob = torch.tensor(rows, requires_grad=True)
    drawn = gumbel_softmax(log_prob, temperature, seeded())
    (slope,) = torch.autograd.grad((drawn * normal(*drawn.shape).float()).sum(), log_prob)
    assert drawn.isfinite().all()
    assert slope.isfinite().all()
    assert (drawn[::3, 0] == 1).all()


@pytest.mark.usefixtures("untouched_random_state")
def test_draws_are_the_generators() -> None:
    log_prob = PI.log().expand(5, -1)
    one, other = (gumbel_softmax(log_prob, 0.5, seeded(seed)) for seed in (0, 1))
    assert torch.equal(gumbel_softmax(log_prob, 0.5, seeded()), one)
    assert not torch.equal(one, other)
    assert not torch.equal(one[0], one[1])


@given(e=st.integers(2, 5), **SIZES)
def test_representations_have_length_one_and_no_order(n: int, k: int, seed: int, e: int) -> None:
    weight, features = memberships(n, k, seed), unit(n, e, seed=seed + 1)
    found = cluster_representations(weight, features)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(k, dtype=torch.float64))
    order = torch.randperm(n, generator=seeded(seed))
    shuffled = cluster_representations(weight[order], features[order])
    torch.testing.assert_close(shuffled, found, atol=1e-9, rtol=1e-9)
    twice = cluster_representations(weight.repeat(2, 1), features.repeat(2, 1))
    torch.testing.assert_close(twice, found, atol=1e-12, rtol=1e-12)


def test_memberships_of_one_give_the_means_of_classes() -> None:
    features, label = unit(12, 5), torch.arange(12) % 3
    found = cluster_representations(one_hot(label).double(), features)
    means = torch.stack([features[label == cluster].mean(dim=0) for cluster in range(3)])
    torch.testing.assert_close(found, normalize(means, dim=1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("little", [0.0, 1e-45, 1e-30, 1e-15])
def test_a_cluster_without_rows_is_zero_and_flat(little: float, dtype: torch.dtype) -> None:
    weight = torch.tensor([[1.0, little], [1.0, little]]).to(dtype).requires_grad_()
    features = unit(2, 3).to(dtype).requires_grad_()
    found = cluster_representations(weight, features)
    slopes = torch.autograd.grad((found * normal(2, 3, seed=1).to(dtype)).sum(), [weight, features])
    assert found.isfinite().all()
    assert all(slope.isfinite().all() for slope in slopes)
    full, sparse = found.norm(dim=1).tolist()
    assert full == pytest.approx(1)
    assert sparse in (0, pytest.approx(1))
    assert little > 0 or (sparse == 0 and not slopes[0][:, 1].any())


def test_rows_that_cancel_leave_no_nan() -> None:
    features = torch.tensor([[1.0, 2.0], [-1.0, -2.0]], requires_grad=True)
    found = cluster_representations(torch.ones(2, 1), features)
    (slope,) = torch.autograd.grad(found.sum(), features)
    assert not found.any()
    assert slope.isfinite().all()


def test_one_centre_and_two() -> None:
    assert spread_centres(1, 3).tolist() == [[1.0, 0.0, 0.0]]
    assert spread_centres(2, 1).tolist() == [[1.0], [-1.0]]


@pytest.mark.parametrize(("clusters", "width", "least"), [(10, 8, 9), (1, 0, 1), (0, 5, 1), (2, 0, 1)])
def test_centres_that_cannot_be_are_refused(clusters: int, width: int, least: int) -> None:
    words = f"{clusters} centres cannot be equally far apart with {width} features: .* width at least {least}"
    with pytest.raises(ConfigError, match=words):
        spread_centres(clusters, width)


@given(**SIZES)
def test_divergence_is_zero_for_uniform_probabilities_alone(n: int, k: int, seed: int) -> None:
    log_prob = normal(n, k, seed=seed).log_softmax(dim=1)
    found = kl_to_uniform(log_prob)
    direct = (log_prob.exp() * (k * log_prob.exp()).log()).sum(dim=1)
    torch.testing.assert_close(found, direct, atol=1e-12, rtol=1e-10)
    uniform = torch.full((1, k), -math.log(k), dtype=torch.float64)
    assert kl_to_uniform(uniform).abs() < 1e-12
    away = (log_prob - uniform).abs().amax(dim=1) > 1e-3
    assert (found > -1e-12).all()
    assert (found[away] > 1e-8).all()
    assert (found <= math.log(k) + 1e-12).all()


def test_divergence_of_certainty_is_finite_and_so_is_its_gradient() -> None:
    log_prob = torch.tensor([[0.0, -torch.inf], [-1e30, 0.0]], requires_grad=True)
    found = kl_to_uniform(log_prob)
    (slope,) = torch.autograd.grad(found.sum(), log_prob)
    torch.testing.assert_close(found, torch.full((2,), math.log(2)))
    assert slope.isfinite().all()


@given(**SIZES)
def test_balance_is_log_k_minus_entropy(n: int, k: int, seed: int) -> None:
    prob = memberships(n, k, seed)
    share = prob.mean(dim=0)
    torch.testing.assert_close(balance(prob), math.log(k) + (share * share.log()).sum(), atol=1e-12, rtol=1e-10)
    assert balance(prob) > -1e-12
    assert balance(prob) <= kl_to_uniform(prob.log()).mean() + 1e-12  # entropy is concave


def test_balance_of_rows_alone_and_together() -> None:
    certain = torch.eye(4, dtype=torch.float64)
    assert balance(certain).abs() < 1e-12
    prob = certain[:1].repeat(5, 1).requires_grad_()
    (slope,) = torch.autograd.grad(balance(prob), prob)
    assert balance(prob).item() == pytest.approx(math.log(4))
    assert slope.isfinite().all()


@given(seed=st.integers(0, 1000), rows=st.integers(1, 5))
def test_the_bound_is_below_the_likelihood(seed: int, rows: int) -> None:
    """TCC's ELBO, with all three clusters enumerated; it is the likelihood itself for the posterior."""
    log_likelihood = 3 * normal(rows, 3, seed=seed)
    total = torch.logsumexp(log_likelihood - math.log(3), dim=1)

    def bound(log_q: Tensor) -> Tensor:
        return (log_q.exp() * log_likelihood).sum(dim=1) - kl_to_uniform(log_q)

    assert (bound(normal(rows, 3, seed=seed + 1).log_softmax(dim=1)) <= total + 1e-12).all()
    torch.testing.assert_close(bound(log_likelihood.log_softmax(dim=1)), total)


@given(steps=st.integers(0, 5), **SIZES)
def test_codes_of_a_row_sum_to_one(n: int, k: int, seed: int, steps: int) -> None:
    codes = swapped_codes(normal(n, k, seed=seed).requires_grad_(), 0.05, steps)
    assert (codes >= 0).all()
    assert not codes.requires_grad
    torch.testing.assert_close(codes.sum(dim=1), torch.ones(n, dtype=torch.float64))


def test_codes_share_rows_out_equally() -> None:
    scores = unit(64, 8) @ unit(5, 8, seed=1).mT
    settled = swapped_codes(scores, 0.05, 1000)
    torch.testing.assert_close(settled.sum(dim=0), torch.full((5,), 64 / 5, dtype=torch.float64))
    missing = [float((swapped_codes(scores, 0.05, steps).sum(dim=0) - 64 / 5).abs().sum()) for steps in (0, 1, 3, 10)]
    assert missing == sorted(missing, reverse=True)


def test_codes_are_those_of_swav() -> None:
    """Its own steps, which begin with the clusters; here rows come first, which saves great scores from overflow."""
    scores = unit(64, 8) @ unit(5, 8, seed=1).mT
    codes = (scores / 0.05).softmax(dim=1)
    for _ in range(3):
        codes = codes / codes.sum(dim=0) / 5
        codes = codes / codes.sum(dim=1, keepdim=True) / 64
    torch.testing.assert_close(swapped_codes(scores, 0.05, 3), 64 * codes)
    assert swapped_codes(1e4 * scores, 0.05, 3).isfinite().all()


def test_codes_do_not_collapse_and_are_as_sharp_as_asked() -> None:
    scores = 0.1 * unit(60, 3)
    scores[:, 0] += 1  # the first cluster is everybody's favourite
    assert (scores.argmax(dim=1) == 0).all()
    counts = one_hot(swapped_codes(scores, 0.05, 50).argmax(dim=1), 3).sum(dim=0)
    assert counts.min() >= 15
    sharp, flat = (swapped_codes(scores, epsilon, 200).amax(dim=1).mean() for epsilon in (0.01, 1.0))
    assert sharp > 0.9
    assert flat < 0.4


def test_gradients_are_right() -> None:
    one, other = normal(4, 3).requires_grad_(), normal(4, 3, seed=1).requires_grad_()
    check = torch.autograd.gradcheck
    assert check(lambda first, second: nt_xent(first, second, 0.5), (one, other))
    assert check(lambda x: gumbel_softmax(x.log_softmax(dim=1), 0.7, seeded()), one)
    assert check(lambda weight, x: cluster_representations(weight.softmax(dim=1), x), (one, other))
    assert check(lambda x: kl_to_uniform(x.log_softmax(dim=1)), one)
    assert check(lambda x: balance(x.softmax(dim=1)), one)
