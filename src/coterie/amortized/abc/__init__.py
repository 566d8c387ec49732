"""Attention-based clustering (ABC): set encoder, similarity kernel, partition. Start at estimator.py."""

from coterie.methods import Method, Option

METHOD = Method(
    name="attention-based",
    estimator="coterie.amortized.abc.estimator:AttentionBasedClustering",
    summary="set encoder, similarity kernel, partition",
    options=(
        Option("--weights", "weights", "Name of pretrained weights, or a model file"),
        Option("--scaling", "scaling", "How number columns are scaled", choices=("robust", "standard", "none")),
    ),
    takes_n_clusters=True,
    network="coterie.amortized.abc.network:AttentionBasedModel",
)
