"""AMCP on the synthetic sets of DAC's Tables 1 and 5, so that it stands beside all that was measured there.

    python -m benchmarks.quality.amcp_suite [--methods amcp,amcp-star] [--anew]

What the results file has already is not measured again.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.quality.dac_methods import NO_LIMIT, Method, filtering
from benchmarks.quality.dac_sets import TABLES, Sets
from benchmarks.quality.dac_suite import Suite, parser_of
from coterie.amortized.amcp.network import AmcpModel
from coterie.base import one_thread

WEIGHTS: Final = "amcp-mog2d-v1"
AS_MADE_BATCHES: Final = 30
"""Of clusters as the passes made them, which all points go through the network for."""


def plan(table: int, sets: Sets) -> Iterator[tuple[Method, int]]:
    """AMCP and AMCP*, with our decoding and with clusters as the passes made them."""
    del table  # all are measured on all sets of each
    as_made = {"decoding": "faithful", "max_points": NO_LIMIT}
    for name, settings in (
        ("amcp", {"decoding": "robust"}),
        ("amcp-star", {"decoding": "robust", "update_previous": True}),
        ("amcp-faithful-decoding", as_made),
        ("amcp-star-faithful-decoding", as_made | {"update_previous": True}),
    ):
        batches = sets.batches if settings["decoding"] == "robust" else min(sets.batches, AS_MADE_BATCHES)
        yield filtering(name, AmcpModel, WEIGHTS, **settings), batches


SUITE: Final = Suite("amcp", Path("benchmarks/results/amcp.jsonl"), {table: TABLES[table] for table in (1, 5)}, plan)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for on the sets of both tables; return the exit status."""
    options = parser_of(SUITE, "benchmarks.quality.amcp_suite", __doc__).parse_args(arguments)
    return max(SUITE.run_all(table, options.methods, options.out, anew=options.anew) for table in SUITE.tables)


if __name__ == "__main__":
    sys.exit(main())
