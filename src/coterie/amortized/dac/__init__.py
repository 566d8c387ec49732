"""DAC: a set transformer that filters out one cluster per pass. Start at estimator.py."""

from coterie.methods import Method, Option

METHOD = Method(
    name="dac",
    estimator="coterie.amortized.dac.estimator:DAC",
    summary="a set transformer that filters out one cluster per pass",
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
    network="coterie.amortized.dac.network:DacModel",
)
