"""DAC: a set transformer that filters out one cluster per pass. Start at estimator.py."""

from coterie.amortized import OPTIONS
from coterie.methods import TORCH_PACKAGES, Method

METHOD = Method(
    name="dac",
    estimator="coterie.amortized.dac.estimator:DAC",
    summary="a set transformer that filters out one cluster per pass",
    options=OPTIONS,
    takes_n_clusters=False,
    learns_from=("tables",),
    network="coterie.amortized.dac.network:DacModel",
    packages=TORCH_PACKAGES,
)
