"""Where labelled sets of points come from."""

from coterie.structures import TaskSampler
from coterie.tasks.circles import CircleTasks
from coterie.tasks.embeddings import EmbeddingTasks
from coterie.tasks.gaussians import MixturesOfGaussians
from coterie.tasks.omniglot import OmniglotTasks
from coterie.tasks.shapes import WarpedGaussians
from coterie.tasks.universal import UniversalTasks

TASKS: dict[str, type[TaskSampler]] = {
    "gaussians": MixturesOfGaussians,
    "warped": WarpedGaussians,
    "circles": CircleTasks,
    "omniglot": OmniglotTasks,
    "embeddings": EmbeddingTasks,
    "universal": UniversalTasks,
}
"""Every kind of sets that a recipe can ask for, by the name that recipes carry."""
