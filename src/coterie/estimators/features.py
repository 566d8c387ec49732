"""Rows with any number of features -> the number that a network was trained for."""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor


@final
@dataclass(frozen=True, slots=True)
class FeatureMatch:
    """A linear map from the features that there are to those that a network takes."""

    centre: Float[Tensor, " D"]
    matrix: Float[Tensor, "D F"]

    def __call__(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
        """Rows as the network takes them."""
        return (x - self.centre) @ self.matrix


def match_features(x: Float[Tensor, "N D"], n_features: int, *, standardised: bool) -> tuple[FeatureMatch, str] | None:
    """How to bring rows to so many features, and a sentence about it; None if they have them already.

    Too few features are repeated in turn, which leaves every distance as it was but for one factor. Too many are
    replaced by their principal components, of unit variance if the network is used to standardised features.
    """
    given = x.shape[1]
    if given == n_features:
        return None
    if given < n_features:
        matrix = torch.zeros((given, n_features), dtype=x.dtype, device=x.device)
        places = torch.arange(n_features, device=x.device)
        matrix[places % given, places] = 1.0
        sentence = f"the network takes {n_features} features: the {given} of the data are repeated"
        return FeatureMatch(torch.zeros_like(x[0]), matrix), sentence
    centre = x.mean(dim=0)
    values, vectors = torch.linalg.eigh((x - centre).T.double() @ (x - centre).double() / len(x))
    matrix = vectors[:, -n_features:].flip(1)
    # The sign of an eigenvector is chance: its largest entry is made positive.
    largest = matrix.gather(0, matrix.abs().argmax(dim=0, keepdim=True))
    matrix = matrix * torch.where(largest < 0, -1.0, 1.0)
    kept = values[-n_features:].flip(0).clamp(min=0)
    share = float(kept.sum() / values.clamp(min=0).sum().clamp(min=torch.finfo(values.dtype).tiny))
    if standardised:
        matrix = matrix / kept.sqrt().clamp(min=1e-6)
    sentence = (
        f"the network takes {n_features} features: of the {given} of the data, the first {n_features} principal "
        f"components are used, which hold {share:.0%} of the variance"
    )
    return FeatureMatch(centre, matrix.to(x.dtype)), sentence
