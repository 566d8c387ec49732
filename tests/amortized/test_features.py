"""The map from the features of the data to those of a network."""

import numpy as np
import torch

from coterie.amortized.features import align_features, fit_feature_map


def test_principal_components_have_unit_variance_and_a_fixed_sign() -> None:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(140, 5)) * [1, 10, 100, 1000, 10000]).float()
    fitted = fit_feature_map(x, 2, standardised=True)
    assert fitted is not None
    mapped = fitted[0].to(x)(x)
    torch.testing.assert_close(mapped.mean(dim=0), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(mapped.std(dim=0, correction=0), torch.ones(2), atol=1e-3, rtol=0)
    largest = fitted[0].matrix.gather(0, fitted[0].matrix.abs().argmax(dim=0, keepdim=True))
    assert (largest > 0).all()
    opposite = fit_feature_map(-x, 2, standardised=True)
    assert opposite is not None
    torch.testing.assert_close(opposite[0].matrix, fitted[0].matrix)
    unscaled = fit_feature_map(x, 2, standardised=False)
    assert unscaled is not None
    torch.testing.assert_close(unscaled[0].matrix.norm(dim=0), torch.ones(2, dtype=torch.float64))


def test_components_that_are_rounding_are_not_amplified() -> None:
    line = torch.linspace(-1, 1, 50)
    x = torch.stack([line, 2 * line, -line, 0.3 * line], dim=1)
    fitted = fit_feature_map(x, 2, standardised=True)
    assert fitted is not None
    mapped = fitted[0].to(x)(x)
    torch.testing.assert_close(mapped[:, 0], mapped[:, 1])
    assert "their first 1 principal components, which hold 100% of the variance" in fitted[1]


def test_features_are_aligned_by_name() -> None:
    assert align_features(["a", "b"], ["a", "b"]) is None
    assert align_features(["a", "z"], ["a", "b"]) is None
    aligned = align_features(["c", "a"], ["a", "b", "c"])
    assert aligned is not None
    assert aligned[0](torch.tensor([[1.0, 2.0]])).tolist() == [[2.0, 0.0, 1.0]]
    assert aligned[1] == "ignored, since they are constant here: 'b'"
