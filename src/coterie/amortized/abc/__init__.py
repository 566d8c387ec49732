"""Attention-based clustering (ABC): set encoder, similarity kernel, partition. Start at estimator.py."""

from coterie.methods import Method, Option

METHOD = Method(
    name="attention-based",
    estimator="coterie.amortized.abc.estimator:AttentionBasedClustering",
    summary="set encoder, similarity kernel, partition",
    options=(
        Option(
            "--weights",
            "weights",
            "pretrained weights: a name that ships, or a file written by learn",
            metavar="NAME|FILE",
        ),
        Option(
            "--scaling",
            "scaling",
            "scaling of number columns (default: robust for clam, standard for tcc, otherwise that of the weights)",
            choices=("auto", "robust", "standard", "none"),
        ),
    ),
    learns_from=("images",),
    network="coterie.amortized.abc.network:AttentionBasedModel",
)
