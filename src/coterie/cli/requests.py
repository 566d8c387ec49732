"""What the user asks a command to do, as plain values."""

from dataclasses import dataclass, field
from typing import final

STEPS = 1500
"""How long ``coterie learn`` trains on a table of sorted sets, unless told."""
IMAGE_STEPS = 600
"""The same on a folder of sorted images."""


@final
@dataclass(frozen=True)
class Reading:
    """Which table to read, and which of its columns to use."""

    file: str
    header: bool | None = None
    delimiter: str | None = None
    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    ids: str | None = None
    truth: str | None = None
    image_size: str | None = None
    """Of a folder: what its images are brought to, as it was written."""


@final
@dataclass(frozen=True)
class Writing:
    """Which files to write, and how to talk about it."""

    rows: str | None = None
    report: str | None = None
    model: str | None = None
    append: bool = False
    force: bool = False
    quiet: bool = False
    json: bool = False


@final
@dataclass(frozen=True)
class ClusterRequest:
    """All that ``coterie cluster`` was told."""

    reading: Reading
    writing: Writing = field(default_factory=Writing)
    method: str = "coterie"
    clusters: str = "auto"
    effort: str | None = None
    """None for the method's own."""
    granularity: float | None = None
    """None for the method's own."""
    outliers: bool = False
    allow_single: bool = False
    weights: str | None = None
    """None for the method's own."""
    scaling: str | None = None
    """None for the method's own."""
    recipe: str | None = None
    """File with the parameters of TCC."""
    seed: int | None = None
    """None for the recipe's, or 0."""
    image: str | None = None


@final
@dataclass(frozen=True)
class PredictRequest:
    """All that ``coterie predict`` was told."""

    model: str
    reading: Reading
    writing: Writing = field(default_factory=Writing)


@final
@dataclass(frozen=True)
class LearnRequest:
    """All that ``coterie learn`` was told; what is None was left to the command."""

    reading: Reading
    """The FILE is a recipe, or a table of sorted sets."""
    writing: Writing = field(default_factory=Writing)
    folder: str | None = None
    tensorboard: str | None = None
    sets: str | None = None
    method: str | None = None
    weights: str | None = None
    steps: int | None = None
    seed: int | None = None
