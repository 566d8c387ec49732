"""Where labelled sets of points come from."""

from coterie.structures import TaskSampler
from coterie.tasks.gaussians import MixturesOfGaussians
from coterie.tasks.shapes import WarpedGaussians

TASKS: dict[str, type[TaskSampler]] = {"gaussians": MixturesOfGaussians, "warped": WarpedGaussians}
"""Every kind of synthetic set by the name that recipes carry."""
