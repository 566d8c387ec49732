"""Set Transformer: its likelihood against a sum by hand; what it shares with ACT-ST is in test_mixture.py."""

import math

import pytest
import torch

from benchmarks.baselines.set_transformer import SetTransformerConfig, SetTransformerModel
from coterie.errors import ConfigError
from tests.models.test_mixture import blobs, seeded, set_transformer


@pytest.mark.parametrize("covariance", ["diagonal", "isotropic"])
def test_loss_is_minus_the_likelihood_by_hand(covariance: str) -> None:
    model, batch = set_transformer(covariance=covariance), blobs()
    hidden, _ = model.encoder(batch.x)
    raw = model.head(model.decoder(model.pool(hidden)))
    share, mean, width = raw[..., 0].softmax(dim=1), raw[..., 1:3], raw[..., 3:]
    assert width.shape[2] == (2 if covariance == "diagonal" else 1)
    deviation = torch.nn.functional.softplus(width) + 1e-6
    noise = (batch.x.unsqueeze(2) - mean.unsqueeze(1)) / deviation.unsqueeze(1)
    density = ((-noise.square() / 2).exp() / (deviation.unsqueeze(1) * math.sqrt(2 * math.pi))).prod(dim=3)
    expected = -(density * share.unsqueeze(1)).sum(dim=2).log().mean()
    torch.testing.assert_close(model.loss(batch, seeded()).total, expected)


def test_published_shape_and_refusals() -> None:
    model = SetTransformerModel(SetTransformerConfig.faithful(2))
    assert model.head.out_features == 4
    assert len(model.encoder.blocks) == 2
    with pytest.raises(ConfigError, match="n_components=0"):
        SetTransformerConfig(2, 0)
    with pytest.raises(ConfigError, match="'full'"):
        SetTransformerConfig(2, covariance="full")  # type: ignore[arg-type]  # what is tested
