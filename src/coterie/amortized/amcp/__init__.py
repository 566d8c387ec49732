"""AMCP: cluster-wise mixing and coupling, reconstructed from the paper. Start at estimator.py."""

from coterie.methods import Method, Option

METHOD = Method(
    name="amcp",
    estimator="coterie.amortized.amcp.estimator:AMCP",
    summary="cluster-wise mixing and coupling",
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
    takes_n_clusters=False,
    learns_from=("tables",),
    network="coterie.amortized.amcp.network:AmcpModel",
)
