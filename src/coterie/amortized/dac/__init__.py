"""DAC: a set transformer that filters out one cluster per pass. Start at estimator.py."""

from coterie.methods import Method, Option

METHOD = Method(
    name="dac",
    estimator="coterie.amortized.dac.estimator:DAC",
    summary="a set transformer that filters out one cluster per pass",
    options=(
        Option("--weights", "weights", "Name of pretrained weights, or a model file"),
        Option("--scaling", "scaling", "How number columns are scaled", choices=("robust", "standard", "none")),
    ),
    takes_n_clusters=False,
    network="coterie.amortized.dac.network:DacModel",
)
