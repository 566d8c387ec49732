"""Fit once, save, and put new rows into the same clusters elsewhere."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split

from coterie import ClAM


def main() -> None:
    known, new = train_test_split(load_iris().data, test_size=50, random_state=0)
    model = ClAM(n_clusters=3, random_state=0).fit(known)

    path = Path("iris.safetensors")
    model.save(path, force=True)  # without force, a file that exists is not replaced
    print(f"saved {path}, {path.stat().st_size} bytes")

    # Elsewhere: one file has the prototypes and how columns became numbers. It holds no row of the data.
    loaded = ClAM.load(path)
    clusters = loaded.predict(new)
    print(f"new rows in each cluster: {np.bincount(clusters, minlength=loaded.n_clusters_).tolist()}")
    print(f"the same as before saving: {bool((clusters == model.predict(new)).all())}")

    memberships = loaded.predict_proba(new).max(axis=1)
    row = int(memberships.argmin())
    print(f"the least sure: {new[row].tolist()}, in cluster {clusters[row]} with membership {memberships[row]:.2f}")


if __name__ == "__main__":
    main()
