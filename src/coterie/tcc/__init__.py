"""TCC: twin contrastive clustering of images and embeddings. Start at estimator.py."""

from coterie.methods import Method, Option

METHOD = Method(
    name="tcc",
    estimator="coterie.tcc.estimator:TCC",
    summary="twin contrastive clustering of images and embeddings, trained on the data itself",
    options=(
        Option("--scaling", "scaling", "How number columns are scaled", choices=("robust", "standard", "none")),
        Option("--recipe", "recipe", "Recipe file with all of its settings"),
    ),
    finds_n_clusters=False,
    network="coterie.tcc.model:TccModel",
)
