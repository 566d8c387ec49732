"""AMCP: cluster-wise mixing and coupling, reconstructed from the paper. Start at estimator.py."""

from coterie.methods import Method, Option

METHOD = Method(
    name="amcp",
    estimator="coterie.amortized.amcp.estimator:AMCP",
    summary="cluster-wise mixing and coupling",
    options=(
        Option("--weights", "weights", "Name of pretrained weights, or a model file"),
        Option("--scaling", "scaling", "How number columns are scaled", choices=("robust", "standard", "none")),
    ),
    takes_n_clusters=False,
    network="coterie.amortized.amcp.network:AmcpModel",
)
