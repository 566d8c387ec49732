"""DAC: a set transformer that filters out one cluster per pass. Start at estimator.py."""

from coterie.amortized import OPTIONS
from coterie.methods import TORCH_PACKAGES, Limits, Method

METHOD = Method(
    name="dac",
    estimator="coterie.amortized.dac.estimator:DAC",
    summary="a set transformer that filters out one cluster per pass",
    options=OPTIONS,
    takes_n_clusters=False,
    learns_from=("tables",),
    network="coterie.amortized.dac.network:DacModel",
    packages=TORCH_PACKAGES,
    limits=Limits(seconds_per_row=2e-3, max_seconds=600.0, n_features=2),
)
