"""Cluster a table, list what was decided, and write a report: `python examples/cluster_table.py`."""

import numpy as np

from coterie import Coterie
from coterie.metrics import adjusted_rand_index
from coterie.tables.readers import example_path, read_table
from coterie.tables.table import choose_columns


def main() -> None:
    # Use your own file with read_table("customers.csv"). The known classes are only used for comparison.
    chosen = choose_columns(read_table(example_path("wine")), truth="cultivar")
    model = Coterie(random_state=0).fit(chosen.features)

    print(f"{model.n_clusters_} clusters of {np.bincount(model.labels_).tolist()} rows")
    for note in (*model.table_.notes, *model.notes_):
        print(f"- {note}")
    if chosen.truth is not None:
        print(f"agreement with the known classes (ARI): {adjusted_rand_index(chosen.truth, model.labels_):.2f}")

    uncertain = np.argsort(model.probabilities_.max(axis=1))[:3]
    print(f"least certain rows: {(uncertain + 1).tolist()}")

    print(f"wrote {model.report('wine.html', title='Wines', truth=chosen.truth, force=True)}")


if __name__ == "__main__":
    main()
