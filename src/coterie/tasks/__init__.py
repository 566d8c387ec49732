"""Where labelled sets of points come from."""

from coterie.structures import TaskSampler
from coterie.tasks.gaussians import MixturesOfGaussians
from coterie.tasks.shapes import WarpedGaussians
from coterie.tasks.universal import UniversalTasks

TASKS: dict[str, type[TaskSampler]] = {
    "gaussians": MixturesOfGaussians,
    "warped": WarpedGaussians,
    "universal": UniversalTasks,
}
"""Every kind of synthetic set by the name that recipes carry."""
