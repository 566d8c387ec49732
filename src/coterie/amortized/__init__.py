"""What DAC, ABC and AMCP share: estimator base, filtering, labelled tasks, feature matching."""

from coterie.methods import Option

OPTIONS = (
    Option(
        "--weights",
        "weights",
        "pretrained weights: a name that ships, or a file written by learn",
        metavar="NAME|FILE",
    ),
    Option(
        "--scaling",
        "scaling",
        "scaling of number columns",
        choices=("auto", "robust", "standard", "none"),
        default="auto",
    ),
)
"""Command-line options of the three methods."""
