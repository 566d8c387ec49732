"""A recipe file -> TCC with all that it says, to be fitted on images of the user's own."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, make_dataclass
from pathlib import Path
from typing import Any, final, get_type_hints

from coterie.config import from_dict, from_recipe
from coterie.errors import ConfigError
from coterie.estimators.tcc import TCC
from coterie.models.tcc import TccConfig
from coterie.ops.views import Views

ELSEWHERE = ("settings", "views", "random_state", "on_progress", "return")
"""Parameters of TCC that [parameters] does not have: they have sections or a key of their own, or are for Python."""
OF_THE_NETWORK = ("n_features", "n_clusters", "image", "encoder", "channels")
"""Settings of TccConfig that [settings] does not have: the images say them, or [parameters]."""


@final
@dataclass(frozen=True, slots=True)
class TccRecipeFile:
    """What a recipe file of TCC has in it."""

    name: str
    summary: str
    """What it is for, in a sentence."""
    seed: int
    """That all randomness comes from."""
    parameters: dict[str, Any]
    """Of ``TCC``; all but ``n_clusters`` may be left to it."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Others of TccConfig."""
    views: dict[str, Any] | None = None
    """Settings of Views; without them, what suits grey images, or colour ones."""


def tcc_from_recipe(path: str | Path, **changed: Any) -> TCC:
    """Read and check a recipe file, and make the estimator that it describes.

    Parameters
    ----------
    path : str or Path
        A TOML file with all that ``TccRecipeFile`` has. If it has a ``folder``, that begins at the current one.
    changed : Any
        Parameters of ``TCC`` that replace those of the file, such as ``on_progress`` or ``epochs``.

    Raises
    ------
    InputError
        If there is no such file, or if something in it is missing, unknown, or of the wrong kind.
    """
    return TCC(**(from_recipe(path, _parameters_from) | changed))


def _parameters_from(source: Mapping[str, Any]) -> dict[str, Any]:
    """Check the content of a recipe file; what it says of TCC's parameters."""
    if "model" in source and "parameters" not in source:
        raise ConfigError("it has [model] and no [parameters], so that it makes weights; use coterie learn with it.")
    file = from_dict(TccRecipeFile, source)
    if file.seed < 0:
        raise ConfigError(f"seed = {file.seed} must be at least 0.")
    if doubled := [name for name in OF_THE_NETWORK if name in file.settings]:
        raise ConfigError(
            f"[settings] has {', '.join(doubled)}, which [parameters] or the images say; leave it out of [settings]."
        )
    from_dict(_parameters_of_a_file(), file.parameters)
    from_dict(TccConfig, {"n_features": 1, "n_clusters": 1, **file.settings})
    views = None if file.views is None else from_dict(Views, file.views)
    return file.parameters | {"settings": file.settings, "views": views, "random_state": file.seed}


def _parameters_of_a_file() -> type:
    """A configuration that has the parameters of TCC which may be in a file, and is called as TCC is."""
    kinds = {name: kind for name, kind in get_type_hints(TCC.__init__).items() if name not in ELSEWHERE}
    kinds["folder"] = str  # a file has no Path
    needed = {"n_clusters"}
    return make_dataclass(
        TCC.__name__,
        [(name, kind, field(default=MISSING if name in needed else None)) for name, kind in kinds.items()],
        frozen=True,
    )
