"""Coterie: clustering that is learned instead of configured."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from coterie.methods import get_method, import_object

if TYPE_CHECKING:
    from coterie.amortized.abc.estimator import AttentionBasedClustering
    from coterie.amortized.amcp.estimator import AMCP
    from coterie.amortized.dac.estimator import DAC
    from coterie.base import BaseClusterer
    from coterie.clam.estimator import ClAM
    from coterie.judged.estimator import Coterie
    from coterie.methods import load
    from coterie.tcc.estimator import TCC

__version__ = "0.2.0"
__all__ = [
    "AMCP",
    "DAC",
    "TCC",
    "AttentionBasedClustering",
    "ClAM",
    "Coterie",
    "__version__",
    "cluster",
    "load",
    "report",
]

# Public names and where they are defined: importing the package imports neither torch nor scikit-learn.
_HOMES = {
    "AMCP": "coterie.amortized.amcp.estimator",
    "AttentionBasedClustering": "coterie.amortized.abc.estimator",
    "ClAM": "coterie.clam.estimator",
    "Coterie": "coterie.judged.estimator",
    "DAC": "coterie.amortized.dac.estimator",
    "TCC": "coterie.tcc.estimator",
    "load": "coterie.methods",
}


def cluster(X: Any, n_clusters: int | Literal["auto"] = "auto", **parameters: Any) -> "Coterie":
    """Cluster the rows of a table, or of a file, with the default method.

    Parameters
    ----------
    X : array, DataFrame, Arrow table, tensor, list of rows, or the path of a file
        Rows to cluster. Of a file, every column is used that can be clustered by.
    n_clusters : int or "auto"
        Number of clusters; by default it is found.
    **parameters
        Other parameters of ``Coterie``; ``random_state`` is 0 unless it is given.

    Returns
    -------
    Coterie
        The fitted estimator: ``labels_``, ``summary()``, ``report("page.html")``, ``plot()``, ``predict``.

    Examples
    --------
    >>> import coterie
    >>> import pandas as pd
    >>> df = pd.DataFrame({"height": [150.0, 152.0, 190.0, 191.0], "plan": ["a", "a", "b", "b"]})
    >>> df["cluster"] = coterie.cluster(df, 2).labels_
    >>> df["cluster"].tolist()
    [0, 0, 1, 1]
    """
    if isinstance(X, str | Path):
        X = import_object("coterie.tables.readers:read_table", "cluster")(X)
    model: Coterie = get_method("coterie").build_estimator(n_clusters=n_clusters, **parameters).fit(X)
    return model


def report(model: "BaseClusterer", X: Any = None, path: str | Path | None = None, **options: Any) -> Path | str:
    """Write one self-contained HTML page about the clusters of the rows of X; see the method ``report``.

    Parameters
    ----------
    model : fitted estimator
        Any of the six.
    X : array, DataFrame, Arrow table, tensor or list of rows, optional
        Rows with the columns of ``fit``; by default those of ``fit``.
    path : str or Path, optional
        File to write. Without it, the page is returned.
    **options
        ``title``, ``ids``, ``truth``, ``images`` and ``force`` of the method ``report``.

    Returns
    -------
    Path or str
        The file; or the HTML if there is no path.

    Examples
    --------
    >>> import coterie
    >>> X = [[0.0], [1.0], [9.0], [10.0]]
    >>> "<h1>Heights</h1>" in coterie.report(coterie.cluster(X, 2), X, title="Heights")
    True
    """
    return model.report(path, X, **options)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return import_object(f"{_HOMES[name]}:{name}", name)


def __dir__() -> list[str]:
    return sorted(__all__)
