"""Cluster short texts without a number of topics, and name the topics: `python examples/cluster_texts.py`."""

from itertools import product

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from coterie import Coterie
from coterie.topics import name_clusters

# Questions to a bank: use your own list of texts.
TOPICS = {
    "card": ("my card", "the new card", "a bank card"),
    "transfer": ("a transfer abroad", "my transfer", "the money transfer"),
    "password": ("the password", "my login password", "a forgotten password"),
}
SAYINGS = ("where is {}", "why was {} declined", "how do I cancel {}", "{} does not work", "I want to change {}")
FILLERS = ("", " today", " please", " at once", " on my phone", " again", " since Monday")


def main() -> None:
    texts = [
        saying.format(thing) + filler
        for things in TOPICS.values()
        for saying, thing, filler in product(SAYINGS, things, FILLERS)
    ]

    # Offline and quick. For your texts, encoder="sentence-transformers:all-MiniLM-L6-v2" is much better (extra text).
    encoder = make_pipeline(TfidfVectorizer(stop_words="english"), TruncatedSVD(10, random_state=0)).fit(texts)
    model = Coterie(encoder=encoder.transform, random_state=0).fit(texts)

    print(f"{len(texts)} texts in {model.n_clusters_} clusters, confidence {model.confidence_:.2f}")
    for cluster, name in name_clusters(texts, model.labels_, n_words=3).items():
        print(f"- {name}: {np.sum(model.labels_ == cluster)} texts")
    new = ["my card is broken", "I forgot the password"]
    print(dict(zip(new, model.predict(new).tolist(), strict=True)))


if __name__ == "__main__":
    main()
