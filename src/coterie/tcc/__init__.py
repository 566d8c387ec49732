"""TCC: twin-contrast clustering of images and embeddings. Start at estimator.py."""

from coterie.methods import TORCH_PACKAGES, Limits, Method, Option

_SCALING = Option(
    "--scaling", "scaling", "scaling of number columns", choices=("robust", "standard", "none"), default="standard"
)
METHOD = Method(
    name="tcc",
    estimator="coterie.tcc.estimator:TCC",
    summary="twin-contrast clustering of images and embeddings, trained on the data itself",
    options=(
        _SCALING,
        Option(
            "--recipe",
            "recipe",
            "TOML file with all settings, such as recipes/tcc-cifar10.toml",
            metavar="FILE.toml",
            gives_n_clusters=True,
        ),
    ),
    finds_n_clusters=False,
    factory="coterie.tcc.estimator:tcc_from_options",
    network="coterie.tcc.model:TccModel",
    packages=TORCH_PACKAGES,
    limits=Limits(seconds_per_row=5e-4, seconds_per_cell=1.3e-4),
)
