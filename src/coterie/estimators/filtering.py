"""What the estimators share whose networks take out one cluster after the other."""

from abc import ABC
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Generator

from coterie.errors import InputError
from coterie.estimators.amortized import AmortizedClusterer, check_at_least_one
from coterie.estimators.base import one_thread, to_numpy
from coterie.models.base import SetModel
from coterie.models.filtering import FilteringModel


class FilteringClusterer(AmortizedClusterer, ABC):
    """Base of the estimators that filter; clusters may have densities, which rows can be asked about."""

    max_points: int | None
    decoding: str

    @one_thread()
    def score_samples(self, X: Any) -> npt.NDArray[np.float32]:
        """Log-density (n,) of each row under the clusters together, in the features that the network takes.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.
        """
        x = self._features(X)
        return to_numpy(self._with_density.joint(x, self._found).logsumexp(dim=1))

    def score(self, X: Any, y: None = None) -> float:
        """Mean log-density of the rows: the higher the better.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.
        y : None
            Not used.
        """
        return float(self.score_samples(X).mean())

    @property
    def _with_density(self) -> FilteringModel:
        if not isinstance(self.model_, FilteringModel) or self.model_.density is None:
            raise InputError("These weights have no density; learn a network with density='flow' or 'gaussian'.")
        return self.model_

    def _beginning(
        self, n_features: int, image: tuple[int, int, int] | None, generator: Generator
    ) -> tuple[SetModel, str | None]:
        model, start = super()._beginning(n_features, image, generator)
        # Whatever the weights were trained for, nobody knows whether the sets to learn from have a direction.
        model.config = replace(model.config, turns=1)
        return model, start

    def _configured(self, config: Any) -> Any:
        if self.max_points is not None:
            check_at_least_one(max_points=self.max_points)
            config = replace(config, max_points=self.max_points)
        return config if self.decoding == "auto" else replace(config, decoding=self.decoding)
