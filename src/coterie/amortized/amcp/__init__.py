"""AMCP: cluster-wise mixing and coupling, reconstructed from the paper. Start at estimator.py."""

from coterie.amortized import OPTIONS
from coterie.methods import TORCH_PACKAGES, Limits, Method

METHOD = Method(
    name="amcp",
    estimator="coterie.amortized.amcp.estimator:AMCP",
    summary="a network that moves one reference per cluster to its rows",
    options=OPTIONS,
    takes_n_clusters=False,
    learns_from=("tables",),
    network="coterie.amortized.amcp.network:AmcpModel",
    packages=TORCH_PACKAGES,
    limits=Limits(seconds_per_row=6e-4, bytes_per_row=4e4, max_seconds=600.0, n_features=2),
)
