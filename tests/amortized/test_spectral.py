"""Spectral clustering: what the eigengap must say, and labels against scikit-learn's."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import spectral_clustering
from sklearn.manifold import spectral_embedding as their_embedding
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from torch import Generator, Tensor

from coterie.amortized.abc import network as spectral
from coterie.errors import InputError


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def blocks(*sizes: int) -> Tensor:
    truth = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return (truth.unsqueeze(1) == truth).float()


def noisy(truth: Tensor, noise: float, seed: int, between: float = -4.0) -> Tensor:
    """Probabilities of pairs with random errors in their logits."""
    error = noise * torch.randn(len(truth), len(truth), generator=generator(seed), dtype=torch.float64)
    logits = torch.where(truth.unsqueeze(1) == truth, 2.0, between) + (error + error.T) / 2**0.5
    return logits.sigmoid().fill_diagonal_(0.99)


def uneven(seed: int, n: int = 80, k: int = 6) -> Tensor:
    odds = torch.rand(k, generator=generator(seed)) + 0.3
    return torch.cat(
        [torch.arange(k).repeat(2), torch.multinomial(odds, n - 2 * k, replacement=True, generator=generator(seed))]
    )


def theirs(kernel: Tensor, k: int, seed: int = 0) -> Tensor:
    labels = spectral_clustering(
        kernel.numpy(), n_clusters=k, assign_labels="kmeans", eigen_solver="arpack", random_state=seed
    )
    return torch.from_numpy(labels)


def test_the_largest_eigenvalue_is_one_and_eigenvectors_have_positive_peaks() -> None:
    affinity = spectral.normalised_affinity(noisy(uneven(0), 1.0, 0).float())
    assert affinity.dtype == torch.float64
    values = spectral.leading_eigenvalues(affinity, 80)
    assert float(values[0]) == pytest.approx(1.0, abs=1e-12)
    assert (values.diff() <= 0).all()
    np.testing.assert_allclose(values.flip(0), np.linalg.eigvalsh(affinity.numpy()), atol=1e-12)
    affinity = spectral.normalised_affinity(noisy(uneven(1), 1.0, 1))
    vectors = spectral.leading_eigenvectors(affinity, 7)
    torch.testing.assert_close(affinity @ vectors, vectors * spectral.leading_eigenvalues(affinity, 7))
    assert (vectors.amax(dim=0) >= -vectors.amin(dim=0)).all()


@given(st.lists(st.integers(2, 9), min_size=1, max_size=8), st.integers(0, 100))
def test_eigengap_counts_blocks_in_any_order(sizes: list[int], seed: int) -> None:
    order = torch.randperm(sum(sizes), generator=generator(seed))
    assert spectral.eigengap(blocks(*sizes)[order][:, order]) == len(sizes)


def test_eigengap_takes_the_right_end_of_the_spectrum() -> None:
    truth = torch.arange(3).repeat_interleave(5)
    kernel = torch.where(truth.unsqueeze(1) == truth, 0.9, 0.05)
    assert spectral.eigengap(kernel) == 3
    laplacian = torch.eye(15, dtype=torch.float64) - spectral.normalised_affinity(kernel)
    wrong = torch.linalg.eigvalsh(laplacian).flip(0)
    assert int((wrong[:-1] - wrong[1:]).argmax()) + 1 == 12  # what the paper's sentence amounts to


@pytest.mark.parametrize("n", [1, 2, 3, 30])
def test_no_gap_and_no_structure_are_one_cluster(n: int) -> None:
    assert (spectral.eigengap(torch.ones(n, n)), spectral.eigengap(torch.eye(n))) == (1, 1)
    assert spectral.eigengap(torch.full((n, n), 1e-12).fill_diagonal_(1.0)) == 1


def test_eigengap_keeps_to_the_most() -> None:
    assert spectral.eigengap(blocks(3, 3, 3, 3), max_clusters=4) == 4
    assert spectral.eigengap(blocks(3, 3, 3, 3), max_clusters=100) == 4
    assert spectral.eigengap(blocks(3, 3, 3, 3), max_clusters=3) <= 3
    assert spectral.eigengap(blocks(3, 3, 3, 3), max_clusters=1) == 1
    with pytest.raises(InputError, match="max_clusters=0"):
        spectral.eigengap(blocks(3, 3), max_clusters=0)


@pytest.mark.parametrize("name", ["blocks", "ones", "identity", "noisy"])
def test_lanczos_finds_the_same_and_always_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = {
        "blocks": blocks(100, 50, 30, 10, 10),
        "ones": torch.ones(200, 200),
        "identity": torch.eye(200),
        "noisy": noisy(uneven(0, 200, 8), 1.0, 0),
    }[name]
    affinity = spectral.normalised_affinity(kernel)
    expected, number = spectral.leading_eigenvalues(affinity, 12), spectral.eigengap(kernel)
    monkeypatch.setattr(spectral, "EXACT_UP_TO", 100)
    monkeypatch.setattr(spectral, "LANCZOS_CLUSTERS", 20)
    torch.testing.assert_close(spectral.leading_eigenvalues(affinity, 12), expected, atol=1e-8, rtol=0)
    first, second = spectral.leading_eigenvectors(affinity, 12), spectral.leading_eigenvectors(affinity, 12)
    assert torch.equal(first, second)
    torch.testing.assert_close(first.T @ first, torch.eye(12, dtype=torch.float64), atol=1e-7, rtol=0)
    assert spectral.eigengap(kernel) == number


def test_lanczos_is_used_for_many_points() -> None:
    assert spectral.eigengap(blocks(900, 700, 300, 150), max_clusters=6) == 4


def test_embedding_is_scikit_learns() -> None:
    kernel = noisy(uneven(3), 0.5, 3)
    expected = their_embedding(kernel.numpy(), n_components=6, eigen_solver="arpack", random_state=0, drop_first=False)
    found = spectral.spectral_embedding(kernel, 6)
    # The leading vector is constant, so its sign is scikit-learn's to choose.
    np.testing.assert_allclose(found.abs(), np.abs(expected), atol=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_labels_of_clear_kernels_are_scikit_learns_and_the_truth(seed: int) -> None:
    truth = uneven(seed)
    kernel = noisy(truth, 0.3, seed, between=-8.0)
    found = spectral.spectral_labels(kernel.float(), 6, generator(seed))
    assert adjusted_rand_score(found, theirs(kernel, 6)) == 1.0
    assert adjusted_rand_score(found, truth) == 1.0


def test_labels_of_noisy_kernels_are_as_scikit_learns() -> None:
    agreement, between_seeds, ours, reference = [], [], [], []
    for seed in range(10):
        truth = uneven(seed)
        kernel = noisy(truth, 3.0, seed, between=-2.0)
        found, expected = spectral.spectral_labels(kernel, 6, generator(seed)), theirs(kernel, 6)
        agreement.append(adjusted_rand_score(found, expected))
        between_seeds.append(adjusted_rand_score(theirs(kernel, 6, seed=1), expected))
        ours.append(normalized_mutual_info_score(truth, found))
        reference.append(normalized_mutual_info_score(truth, expected))
    assert np.mean(reference) < 0.98, "these kernels are meant to be hard"
    assert np.mean(agreement) > np.mean(between_seeds) - 0.02, "no further than scikit-learn is from itself"
    assert np.mean(ours) == pytest.approx(np.mean(reference), abs=0.02)


@pytest.mark.parametrize("k", [1, 2, 5, 12])
def test_every_cluster_gets_a_point(k: int) -> None:
    for kernel in (torch.ones(12, 12), torch.eye(12), blocks(6, 6), blocks(11, 1)):
        found = spectral.spectral_labels(kernel, k, generator())
        sizes = found.bincount()
        assert found.dtype == torch.int64
        assert len(sizes) == k
        assert (sizes > 0).all()
        assert (sizes.diff() <= 0).all()


def test_a_centre_without_points_gets_the_farthest() -> None:
    distances = torch.tensor([[0.0, 9.0, 99.0], [4.0, 9.0, 99.0], [1.0, 9.0, 99.0], [9.0, 5.0, 99.0]])
    assert spectral._fill_empty(distances).tolist() == [0, 2, 0, 1]


@pytest.mark.usefixtures("untouched_random_state")
def test_same_seed_same_labels_and_the_kernel_is_left_alone() -> None:
    kernel = noisy(uneven(0), 3.0, 0)
    before = kernel.clone()
    assert torch.equal(
        spectral.spectral_labels(kernel, 9, generator(1)), spectral.spectral_labels(kernel, 9, generator(1))
    )
    assert torch.equal(kernel, before)


@pytest.mark.parametrize("k", [0, 4])
def test_impossible_numbers_of_clusters_are_rejected(k: int) -> None:
    with pytest.raises(InputError, match=f"3 points cannot form {k} clusters; ask for 1 to 3"):
        spectral.spectral_labels(torch.ones(3, 3), k, generator())
    with pytest.raises(InputError, match="restarts=0"):
        spectral.spectral_labels(torch.ones(3, 3), 2, generator(), restarts=0)
