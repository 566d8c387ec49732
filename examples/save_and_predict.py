"""Fit once, save the model, and assign new rows later: `python examples/save_and_predict.py`."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split

import coterie
from coterie import Coterie


def main() -> None:
    known, new = train_test_split(load_iris().data, test_size=50, random_state=0)
    model = Coterie(n_clusters=3, random_state=0).fit(known)

    path = Path("iris.safetensors")
    model.save(path, force=True)  # force replaces an existing file
    print(f"saved {path}, {path.stat().st_size} bytes")

    # In another program: the file is all that is needed.
    loaded = coterie.load(path)
    clusters = loaded.predict(new)
    print(f"new rows per cluster: {np.bincount(clusters, minlength=loaded.n_clusters_).tolist()}")
    print(f"same as before saving: {bool((clusters == model.predict(new)).all())}")

    probabilities = loaded.predict_proba(new).max(axis=1)
    row = int(probabilities.argmin())
    print(f"least certain: {new[row].tolist()}, in cluster {clusters[row]} with probability {probabilities[row]:.2f}")


if __name__ == "__main__":
    main()
