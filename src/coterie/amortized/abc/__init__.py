"""Attention-based clustering (ABC): set encoder, similarity kernel, partition. Start at estimator.py."""

from coterie.amortized import OPTIONS
from coterie.methods import TORCH_PACKAGES, Limits, Method

METHOD = Method(
    name="attention-based",
    estimator="coterie.amortized.abc.estimator:AttentionBasedClustering",
    summary="a set encoder that predicts which pairs of rows are in the same cluster",
    options=OPTIONS,
    learns_from=("images",),
    network="coterie.amortized.abc.network:AttentionBasedModel",
    packages=TORCH_PACKAGES,
    limits=Limits(seconds_per_row=2e-4, max_seconds=600.0),
)
