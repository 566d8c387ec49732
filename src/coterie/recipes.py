"""A recipe file -> tasks, model and training -> a checkpoint; the same file gives the same checkpoint again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, final

import torch
from torch import Generator

from coterie import __version__
from coterie.amortized.tasks.synthetic import CircleTasks, MixturesOfGaussians, WarpedGaussians
from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.config import from_dict, from_recipe, to_dict
from coterie.errors import ConfigError, WeightsError
from coterie.judged.features.table import BRIEF
from coterie.judged.judge import JudgeModel
from coterie.judged.prior.universal import UniversalTasks
from coterie.judged.training import JudgingConfig, calibrated, held_out_choices, judged_batches, judged_sets
from coterie.methods import METHODS, get_method
from coterie.metrics import adjusted_rand_index, normalized_mutual_information
from coterie.nn.model import SetModel, TaskBatch, TaskSampler, build, settled
from coterie.pretrained.registry import file_digest, is_name, is_path, pretrained_path
from coterie.progress import Progress
from coterie.training.batches import task_batches
from coterie.training.distributed import leads, rank, wait_for_all
from coterie.training.loop import TrainConfig, train
from coterie.training.state import STATE_FILE, claim, logged

EVALUATION_BATCHES = 20
"""Batches that are held out; they come from a generator of their own."""
LICENCE = "BSD-3-Clause"
JUDGE = "judge"

Part = TypeVar("Part")

TASKS: dict[str, type[TaskSampler]] = {
    "gaussians": MixturesOfGaussians,
    "warped": WarpedGaussians,
    "circles": CircleTasks,
    "universal": UniversalTasks,
}
"""Samplers of labelled tasks, by the ``kind`` that recipes name; add to it to train on others."""
NETWORKS: dict[str, type[SetModel]] = {}
"""Networks that no method of the package has, by the ``method`` that recipes name; add to it to train others."""


@final
@dataclass(frozen=True, slots=True)
class RecipeFile:
    """What a recipe file has in it."""

    name: str
    summary: str
    seed: int
    batch_size: int
    model: dict[str, Any]
    """``method``, a key of MODELS, and the settings of its configuration."""
    tasks: dict[str, Any]
    """``kind``, a key of TASKS, and the settings of the sampler."""
    train: dict[str, Any]
    """Settings of TrainConfig."""
    proposals: dict[str, Any] | None = None
    """Settings of JudgingConfig, for a judge."""
    held_out: dict[str, Any] | None = None
    """As ``tasks``, where the sets to evaluate and calibrate with are of another kind."""
    start: str | None = None
    scaling: Literal["none", "standard"] = "none"


@final
@dataclass(frozen=True, slots=True)
class Recipe:
    """All that decides what a checkpoint will be."""

    name: str
    """Name of the checkpoint; what it stands for never changes."""
    summary: str
    """What it is for, in a sentence."""
    method: str
    """Key of MODELS."""
    model: Any
    """Configuration of the model."""
    tasks: TaskSampler
    """Where the training sets come from."""
    batch_size: int
    """Sets in a batch."""
    train: TrainConfig
    """How to optimise."""
    seed: int
    """Of the first weights and of all sets."""
    source: Mapping[str, Any]
    """The file's own content, for the card."""
    proposals: JudgingConfig | None = None
    """What a judge is trained on; None for what clusters."""
    held_out: TaskSampler | None = None
    """Where the sets to evaluate and calibrate with come from; None for the same as those to train on."""
    start: str | Path | None = None
    """Weights to begin from, by registered name or by path, instead of random ones."""
    scaling: Literal["none", "standard"] = "none"
    """How the columns of a table are to be scaled to look like those of the training sets."""


def read_recipe(path: str | Path) -> Recipe:
    """Read and check a recipe file.

    Parameters
    ----------
    path : str or Path
        A TOML file with all that ``RecipeFile`` has. If ``start`` is a path, it begins at the file's folder.

    Raises
    ------
    InputError
        If there is no such file, or if something in it is missing, unknown, or of the wrong kind.
    """
    return from_recipe(path, partial(recipe_from, folder=Path(path).parent))


def recipe_from(source: Mapping[str, Any], *, folder: Path = Path()) -> Recipe:
    """Check the content of a recipe file; paths in it begin at the folder."""
    if "parameters" in source and "model" not in source:
        raise ConfigError(
            "it has [parameters] and no [model]: it is for TCC, which makes no weights, but learns from the images "
            "that it sorts. Say: coterie cluster FOLDER --method tcc --recipe FILE.toml, with this file."
        )
    file = from_dict(RecipeFile, source)
    if not is_name(file.name):
        raise ConfigError(f"name = {file.name!r} must be of small letters, digits, and hyphens between them.")
    if file.seed < 0 or file.batch_size < 1:
        raise ConfigError(f"seed = {file.seed} must be at least 0, and batch_size = {file.batch_size} at least 1.")
    method, model = _taken_out(file.model, "method", "[model]")
    optimisation = from_dict(TrainConfig, file.train)
    if optimisation.steps < 1:
        raise ConfigError(f"[train] has steps = {optimisation.steps}; at least 1 is needed.")
    if (method == JUDGE) != (file.proposals is not None):
        raise ConfigError(f"[proposals] is for the method {JUDGE!r}, which needs it; [model] has method = {method!r}.")
    starts_from_path = file.start is not None and is_path(file.start)
    return Recipe(
        name=file.name,
        summary=file.summary,
        method=method,
        model=_model_config(method, model),
        proposals=None if file.proposals is None else from_dict(JudgingConfig, file.proposals),
        tasks=_sampler(file.tasks, "[tasks]"),
        held_out=None if file.held_out is None else _sampler(file.held_out, "[held_out]"),
        batch_size=file.batch_size,
        train=optimisation,
        seed=file.seed,
        source=source,
        start=folder / str(file.start) if starts_from_path else file.start,
        scaling=file.scaling,
    )


def run_recipe(recipe: Recipe, folder: Path, *, on_log: Callable[[Progress], None] | None = None) -> Path:
    """Train as the recipe says, going on from what the folder holds.

    Processes that ``torch.distributed`` joins train together, each on sets of its own.

    Parameters
    ----------
    recipe : Recipe
        What to do.
    folder : Path
        Where the run is kept: its state, its log and its checkpoint. It is made if it does not exist.
    on_log : callable, optional
        Called after every step.

    Returns
    -------
    Path
        The checkpoint, written into the folder. One recipe, one version of torch, one kind of processor and one number
        of threads and of processes give one file, however often training was stopped.

    Raises
    ------
    TrainingError
        If the folder holds a run of another recipe, or if the loss is no longer a number.
    WeightsError
        If the weights to begin from do not fit.
    """
    if recipe.proposals is not None:
        return _run_judge(recipe, recipe.proposals, folder, on_log)
    generator = Generator().manual_seed(recipe.seed)
    model = build(_trained_on_tasks()[recipe.method], recipe.model, generator)
    held_out = Generator().manual_seed(recipe.seed + 1)
    shown = recipe.held_out or recipe.tasks
    fixed = [shown.sample(recipe.batch_size, held_out) for _ in range(EVALUATION_BATCHES)]
    _check_features(recipe, fixed[0])
    start = None if recipe.start is None else _begin_from(recipe.start, model, recipe.method)
    claim(folder, _decisive(recipe) | {"start": start})
    if rank() > 0:  # the first process goes on as one alone would, and the next seed is that of what is held out
        generator.manual_seed(recipe.seed + 1 + rank())
    batches = task_batches(recipe.tasks, batch_size=recipe.batch_size, generator=generator)
    train(
        model,
        batches,
        recipe.train,
        generator=generator,
        on_log=on_log,
        evaluate=lambda: held_out_loss(model, fixed),
        folder=folder,
    )
    model.eval()
    with torch.no_grad():
        model.config = model.calibrated(fixed, normalized_mutual_information)
    path = folder / f"{recipe.name}.safetensors"
    if leads():
        save_checkpoint(path, model.state_dict(), _card(recipe, folder, start, model, fixed), force=True)
    wait_for_all()
    return path


def _run_judge(
    recipe: Recipe, proposals: JudgingConfig, folder: Path, on_log: Callable[[Progress], None] | None
) -> Path:
    """Make the judged sets, train on them, calibrate, and write the checkpoint."""
    if not isinstance(recipe.tasks, UniversalTasks) or recipe.start is not None:
        raise ConfigError('A judge is trained on [tasks] of kind = "universal", and from nothing.')
    claim(folder, _decisive(recipe))
    sets = judged_sets(recipe.tasks, proposals, recipe.seed, folder / "judged")
    training, testing = sets[: proposals.sets], sets[proposals.sets :]
    generator = Generator().manual_seed(recipe.seed)
    model = build(JudgeModel, recipe.model, generator)
    model.accustom(torch.cat([one.columns for one in training]))
    train(
        model,
        judged_batches(training, batch_size=recipe.batch_size, shown=proposals.shown, generator=generator),
        recipe.train,
        generator=generator,
        on_log=on_log,
        evaluate=lambda: held_out_choices(model, testing),
        folder=folder,
    )
    model.eval()
    path = folder / f"{recipe.name}.safetensors"
    card = _first_of_card(recipe, folder) | {
        "columns": list(BRIEF),
        "calibration": calibrated(model, testing),
        "evaluation": held_out_choices(model, testing),
    }
    save_checkpoint(path, model.state_dict(), card, force=True)
    return path


def held_out_loss(model: SetModel, batches: Sequence[TaskBatch]) -> dict[str, float]:
    """Mean loss, and means of its parts."""
    sums: dict[str, float] = {}
    with torch.no_grad(), settled(model):
        for batch in batches:
            loss = model.loss(batch, Generator().manual_seed(0))
            for name, value in {"loss": float(loss.total), **loss.parts}.items():
                sums[name] = sums.get(name, 0.0) + value
    return {name: value / len(batches) for name, value in sums.items()}


def held_out_scores(model: SetModel, batches: Sequence[TaskBatch]) -> dict[str, float]:
    """Mean adjusted Rand index of the sets, and the share of them whose number of clusters was found."""
    agreements, found_numbers = [], []
    for batch in batches:
        with torch.no_grad(), settled(model):
            clusterings = model.cluster_sets(batch.x, batch.valid, Generator().manual_seed(0))
        for found, labels, valid in zip(clusterings, batch.labels, batch.valid, strict=True):
            truth = labels[valid]
            agreements.append(adjusted_rand_index(truth.tolist(), found.labels[valid].tolist()))
            found_numbers.append(found.n_clusters == len(truth.unique()))
    return {
        "adjusted_rand_index": sum(agreements) / len(agreements),
        "right_number_of_clusters": sum(found_numbers) / len(found_numbers),
    }


def seconds_trained(folder: Path) -> float:
    """Time that the steps of a run took, over all the times that it was taken up."""
    total = before = 0.0
    for line in logged(folder):
        now = float(line["seconds"])
        total += now - before if now >= before else now  # each time counts from 0
        before = now
    return total


def _card(
    recipe: Recipe, folder: Path, start: Mapping[str, str] | None, model: SetModel, fixed: Sequence[TaskBatch]
) -> dict[str, Any]:
    """How the weights came to be, and how well they do."""
    return _first_of_card(recipe, folder) | {
        "model": to_dict(model.config),
        "start": start,
        "scaling": recipe.scaling,
        "evaluation": held_out_loss(model, fixed) | held_out_scores(model, fixed),
    }


def _first_of_card(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """What the card of any checkpoint begins with."""
    return {
        "method": recipe.method,
        "coterie": __version__,
        "name": recipe.name,
        "summary": recipe.summary,
        "licence": LICENCE,
        "model": to_dict(recipe.model),
        "recipe": dict(recipe.source),
        "steps": load_checkpoint(folder / STATE_FILE)[1]["step"],
    }


def _model_config(method: object, settings: Mapping[str, Any]) -> Any:
    if method == JUDGE:  # it reads as many numbers about a proposal as there are
        return from_dict(JudgeModel.Config, {"n_columns": len(BRIEF), **settings})
    return from_dict(_chosen(_trained_on_tasks(), method, "[model] has method").Config, settings)


def _trained_on_tasks() -> dict[str, type[SetModel]]:
    shipped = {name: get_method(name).load_network() for name in METHODS}
    return {name: kind for name, kind in shipped.items() if kind and issubclass(kind, SetModel)} | NETWORKS


def _taken_out(settings: Mapping[str, Any], key: str, section: str) -> tuple[Any, dict[str, Any]]:
    """Value of one key, and the other settings."""
    if key not in settings:
        raise ConfigError(f"{section} lacks the setting {key!r}.")
    return settings[key], {name: value for name, value in settings.items() if name != key}


def _chosen(known: Mapping[str, Part], name: object, what: str) -> Part:
    if not isinstance(name, str) or name not in known:
        raise ConfigError(f"{what} = {name!r}; known are: {', '.join(known)}.")
    return known[name]


def _sampler(section: Mapping[str, Any], name: str) -> TaskSampler:
    kind, settings = _taken_out(section, "kind", name)
    sampler: Any = _chosen(TASKS, kind, f"{name} has kind")
    drawn_from: TaskSampler = from_dict(sampler, settings)
    return drawn_from


def _check_features(recipe: Recipe, batch: TaskBatch) -> None:
    """Refuse a network that is made for points of another width than the tasks have."""
    wanted = to_dict(recipe.model).get("n_features", batch.x.shape[2])
    if wanted != batch.x.shape[2]:
        raise ConfigError(
            f"[model] has n_features = {wanted}, and the points of [tasks] have {batch.x.shape[2]} features. "
            "Make them equal."
        )


def _decisive(recipe: Recipe) -> dict[str, Any]:
    """All that the file says of what is computed, which neither the name nor the summary does."""
    return {key: value for key, value in recipe.source.items() if key not in {"name", "summary"}}


def _begin_from(start: str | Path, model: SetModel, method: str) -> dict[str, str]:
    """Put weights into the model; say which ones, for the card."""
    path = pretrained_path(start)
    tensors, card = load_checkpoint(path)
    if card.get("method") != method:
        raise WeightsError(
            f"start = {str(start)!r} has weights of the method {card.get('method')!r}, and the recipe is for "
            f"{method!r}. Begin from other weights."
        )
    own = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    given = {name: tuple(value.shape) for name, value in tensors.items()}
    unlike = [name for name in sorted(own.keys() | given.keys()) if own.get(name) != given.get(name)]
    if unlike:
        first = unlike[0]
        raise WeightsError(
            f"start = {str(start)!r} does not fit the recipe's [model]: {len(unlike)} tensors differ, such as "
            f"{first!r}, of shape {given.get(first, 'none')} there and {own.get(first, 'none')} here. "
            f"Take over its settings: {card.get('model')}."
        )
    model.load_state_dict(tensors)
    return {"name": str(card.get("name", path.stem)), "sha256": file_digest(path)}
