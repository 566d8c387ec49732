"""ClAM: prototypes as associative memories, trained by gradient descent on the data. Start at estimator.py."""

from coterie.methods import TORCH_PACKAGES, Method, Option

_SCALING = Option(
    "--scaling", "scaling", "scaling of number columns", choices=("robust", "standard", "none"), default="robust"
)
METHOD = Method(
    name="clam",
    estimator="coterie.clam.estimator:ClAM",
    summary="prototypes as associative memories, trained on the data itself",
    options=(_SCALING,),
    network="coterie.clam.model:ClamModel",
    packages=TORCH_PACKAGES,
)
