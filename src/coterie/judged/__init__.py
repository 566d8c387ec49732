"""Coterie, the default: many candidate partitions, scored by one pretrained judge. Start at estimator.py."""

from coterie.methods import Method, Option

METHOD = Method(
    name="coterie",
    estimator="coterie.judged.estimator:Coterie",
    summary="many candidate partitions, scored by one pretrained judge",
    options=(
        Option("--effort", "effort", "How many candidates are tried", choices=("fast", "balanced", "thorough")),
        Option("--granularity", "granularity", "Above 0 for more clusters, below for fewer", kind=float),
        Option("--noise", "noise", "Leave outliers out of all clusters (label -1)", kind=bool),
        Option("--allow-single", "allow_single", "Allow the answer that all rows are one cluster", kind=bool),
    ),
)
