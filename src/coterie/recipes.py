"""Recipe files: everything that determines trained weights; the same file always gives the same checkpoint."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, cast, final

import torch
from torch import Generator

from coterie import __version__
from coterie.amortized.tasks.synthetic import CircleTasks, MixturesOfGaussians, WarpedGaussians
from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.config import from_dict, from_recipe, to_dict
from coterie.errors import ConfigError, WeightsError
from coterie.judged.features.table import column_names
from coterie.judged.judge import JudgeConfig
from coterie.judged.network import JudgeModel
from coterie.judged.prior.embeddings import EmbeddingPrior
from coterie.judged.prior.universal import SyntheticPrior
from coterie.judged.training import JudgedTasks, ScoredSetsConfig, train_judge
from coterie.methods import METHODS, get_method
from coterie.metrics import adjusted_rand_index, normalized_mutual_information
from coterie.nn.model import SetModel, TaskBatch, TaskSampler, build, eval_mode, to_arrays, to_tensors
from coterie.pretrained.registry import file_digest, is_name, is_path, pretrained_path
from coterie.progress import Callback
from coterie.training.batches import task_batches
from coterie.training.distributed import barrier, rank
from coterie.training.loop import TrainConfig, train
from coterie.training.state import STATE_FILE, open_run, read_log

EVALUATION_BATCHES = 20  # held-out batches, sampled with a seed of their own
LICENCE = "BSD-3-Clause"
JUDGE = "judge"

T = TypeVar("T")

TASKS: dict[str, type[TaskSampler] | type[EmbeddingPrior]] = {
    "gaussians": MixturesOfGaussians,
    "warped": WarpedGaussians,
    "circles": CircleTasks,
    "universal": SyntheticPrior,
    "embeddings": EmbeddingPrior,
}
"""Task samplers by their ``kind`` in recipes; add to it to train on others."""
NETWORKS: dict[str, type[SetModel]] = {}
"""Further networks by their ``method`` in recipes, beside those of ``METHODS``; add to it to train others."""


@final
@dataclass(frozen=True, slots=True)
class RecipeFile:
    """The content of a recipe file."""

    RENAMED: ClassVar = {"proposals": "candidates"}

    name: str
    summary: str
    seed: int
    batch_size: int
    model: dict[str, Any]  # ``method`` (a key of METHODS or NETWORKS, or "judge") and settings of its network
    tasks: dict[str, Any]  # ``kind`` (a key of TASKS) and settings of the sampler
    train: dict[str, Any]  # settings of TrainConfig
    candidates: dict[str, Any] | None = None  # settings of ScoredSetsConfig, for a judge
    held_out: dict[str, Any] | None = None  # like ``tasks``, for evaluation and calibration on other tasks
    start: str | None = None
    more: tuple[str, ...] = ()  # further recipes of judges, whose scored sets a judge is trained on too
    scaling: Literal["none", "standard"] = "none"


@final
@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that determines a checkpoint."""

    name: str  # name of the checkpoint; the weights behind a name never change
    summary: str = field(compare=False)  # one sentence about what the weights are for
    method: str
    model: Any  # configuration of the network
    tasks: TaskSampler | EmbeddingPrior  # sampler of the training tasks; of embeddings for judges only
    batch_size: int
    train: TrainConfig
    seed: int  # seed of the initial weights and of all tasks
    source: Mapping[str, Any] = field(compare=False)  # content of the file, for the card
    candidates: ScoredSetsConfig | None = None  # what a judge is trained on; None for other methods
    held_out: TaskSampler | EmbeddingPrior | None = (
        None  # sampler of the tasks for evaluation and calibration; None for ``tasks``
    )
    start: str | Path | None = None  # initial weights: a registered name or a path; None for random ones
    more: "tuple[Recipe, ...]" = ()  # recipes whose scored sets a judge is trained on too
    scaling: Literal["none", "standard"] = "none"  # of a table's columns, so that they resemble the training tasks


def read_recipe(path: str | Path) -> Recipe:
    """Read and check a TOML file with the fields of ``RecipeFile``; a path in ``start`` is relative to its folder."""
    return from_recipe(path, partial(parse_recipe, folder=Path(path).parent))


def parse_recipe(source: Mapping[str, Any], *, folder: Path = Path()) -> Recipe:
    """Check the content of a recipe file; paths in it are relative to the folder."""
    if "parameters" in source and "model" not in source:
        raise ConfigError(
            "it has [parameters] and no [model]: it is a recipe for TCC, which trains on the images that it clusters. "
            "Run: coterie cluster FOLDER --method tcc --recipe FILE.toml."
        )
    file = from_dict(RecipeFile, source)
    if not is_name(file.name):
        raise ConfigError(f"name = {file.name!r} must consist of lower-case letters and digits, joined by hyphens.")
    if file.seed < 0 or file.batch_size < 1:
        raise ConfigError(f"seed = {file.seed} must be at least 0, and batch_size = {file.batch_size} at least 1.")
    method, model = _split(file.model, "method", "[model]")
    tasks = _sampler(file.tasks, "[tasks]")
    optimisation = from_dict(TrainConfig, file.train)
    if optimisation.steps < 1:
        raise ConfigError(f"[train] has steps = {optimisation.steps}; it must be at least 1.")
    if (method == JUDGE) != (file.candidates is not None):
        raise ConfigError(
            f"[candidates] belongs to the method 'judge', which needs it; [model] has method = {method!r}."
        )
    return Recipe(
        name=file.name,
        summary=file.summary,
        method=method,
        model=_model_config(method, model, getattr(tasks, "metric", "euclidean")),
        candidates=None if file.candidates is None else from_dict(ScoredSetsConfig, file.candidates),
        tasks=tasks,
        held_out=None if file.held_out is None else _sampler(file.held_out, "[held_out]"),
        batch_size=file.batch_size,
        train=optimisation,
        seed=file.seed,
        source=source,
        more=tuple(read_recipe(folder / path) for path in file.more),
        start=folder / file.start if file.start is not None and is_path(file.start) else file.start,
        scaling=file.scaling,
    )


def run_recipe(recipe: Recipe, folder: Path, *, callback: Callback | None = None) -> Path:
    """Train as the recipe says, resume if the folder holds an interrupted run, and return the checkpoint in the folder.

    It is reproducible for the same recipe, version of torch, type of processor, and numbers of threads and processes,
    however often training was interrupted. Processes joined by ``torch.distributed`` train together, each on its own
    tasks. The callback is called with a ``Progress`` after every step.
    """
    run = _train_on_candidates if recipe.candidates is not None else _train_on_tasks
    model, card = run(recipe, folder, callback)
    path = folder / f"{recipe.name}.safetensors"
    if rank() == 0:
        origin = {
            "method": recipe.method,
            "coterie": __version__,
            "name": recipe.name,
            "summary": recipe.summary,
            "licence": LICENCE,
            "model": to_dict(model.config),
            "recipe": dict(recipe.source),
            "steps": load_checkpoint(folder / STATE_FILE)[1]["step"],
        }
        save_checkpoint(path, to_arrays(model.state_dict()), origin | card, force=True)
    barrier()
    return path


def _train_on_tasks(recipe: Recipe, folder: Path, callback: Callback | None) -> tuple[SetModel, dict[str, Any]]:
    """Train a network on labelled tasks and calibrate it; return it with its part of the card."""
    generator = Generator().manual_seed(recipe.seed)
    model = build(_networks()[recipe.method], recipe.model, generator)
    tasks, sampler = recipe.tasks, recipe.held_out or recipe.tasks
    if isinstance(tasks, EmbeddingPrior) or isinstance(sampler, EmbeddingPrior):
        raise ConfigError('[tasks] of kind = "embeddings" are for judges only. Choose another kind.')
    seeded = Generator().manual_seed(recipe.seed + 1)
    held_out = [sampler.sample(recipe.batch_size, seeded) for _ in range(EVALUATION_BATCHES)]
    _check_features(recipe, held_out[0])
    start = None if recipe.start is None else _load_start_weights(recipe.start, model, recipe.method)
    open_run(folder, _run_settings(recipe) | {"start": start})
    if rank() > 0:  # rank 0 samples what a single process would; the next seed is that of the held-out tasks
        generator.manual_seed(recipe.seed + 1 + rank())
    train(
        model,
        task_batches(tasks, batch_size=recipe.batch_size, generator=generator),
        recipe.train,
        generator=generator,
        callback=callback,
        evaluate=lambda: evaluate_loss(model, held_out),
        folder=folder,
    )
    model.eval()
    with torch.no_grad():
        model.config = model.calibrate(held_out, normalized_mutual_information)
    evaluation = evaluate_loss(model, held_out) | evaluate_clusterings(model, held_out)
    return model, {"start": start, "scaling": recipe.scaling, "evaluation": evaluation}


def _train_on_candidates(recipe: Recipe, folder: Path, callback: Callback | None) -> tuple[JudgeModel, dict[str, Any]]:
    """Train a judge; return it with its part of the card."""
    if not isinstance(recipe.tasks, SyntheticPrior | EmbeddingPrior) or recipe.candidates is None:
        raise ConfigError('A judge is trained on [tasks] of kind = "universal" or "embeddings".')
    open_run(folder, _run_settings(recipe))
    model, card = train_judge(
        recipe.model,
        recipe.tasks,
        recipe.candidates,
        recipe.train,
        more=tuple(_with_candidates(recipe.more)),
        batch_size=recipe.batch_size,
        seed=recipe.seed,
        folder=folder,
        start=recipe.start,
        callback=callback,
    )
    start = None if recipe.start is None else str(recipe.start)
    return model, card | {"start": start, "more": [dict(each.source) for each in recipe.more]}


def _with_candidates(recipes: Sequence[Recipe]) -> Iterator[tuple[JudgedTasks, ScoredSetsConfig, int]]:
    """Yield what the scored sets of recipes of judges depend on."""
    for each in recipes:
        if not isinstance(each.tasks, SyntheticPrior | EmbeddingPrior) or each.candidates is None:
            raise ConfigError(f"more has {each.name!r}, which is no recipe of a judge. Leave it out.")
        yield each.tasks, each.candidates, each.seed


def evaluate_loss(model: SetModel, batches: Sequence[TaskBatch]) -> dict[str, float]:
    """Return the mean loss and the means of its parts."""
    sums: dict[str, float] = {}
    with torch.no_grad(), eval_mode(model):
        for batch in batches:
            loss = model.loss(batch, Generator().manual_seed(0))
            for name, value in {"loss": float(loss.total), **loss.parts}.items():
                sums[name] = sums.get(name, 0.0) + value
    return {name: value / len(batches) for name, value in sums.items()}


def evaluate_clusterings(model: SetModel, batches: Sequence[TaskBatch]) -> dict[str, float]:
    """Return the mean adjusted Rand index, and the fraction of tasks whose number of clusters was found."""
    agreements, found_numbers = [], []
    for batch in batches:
        with torch.no_grad(), eval_mode(model):
            clusterings = model.cluster_sets(batch.x, batch.valid, Generator().manual_seed(0))
        for found, labels, valid in zip(clusterings, batch.labels, batch.valid, strict=True):
            truth = labels[valid]
            agreements.append(adjusted_rand_index(truth.tolist(), found.labels[valid].tolist()))
            found_numbers.append(found.n_clusters == len(truth.unique()))
    return {
        "adjusted_rand_index": sum(agreements) / len(agreements),
        "right_number_of_clusters": sum(found_numbers) / len(found_numbers),
    }


def training_seconds(folder: Path) -> float:
    """Return the time that the steps of a run took, over all its resumptions."""
    total = before = 0.0
    for line in read_log(folder):
        now = float(line["seconds"])
        total += now - before if now >= before else now  # each resumption counts from 0
        before = now
    return total


def _model_config(method: object, settings: Mapping[str, Any], metric: str) -> Any:
    if method == JUDGE:
        return from_dict(JudgeConfig, {"n_columns": len(column_names(metric)), **settings})
    return from_dict(_look_up(_networks(), method, "[model] has method").Config, settings)


def _networks() -> dict[str, type[SetModel]]:
    """Return the networks that are trained on tasks, by method."""
    shipped = {name: get_method(name).load_network() for name in METHODS}
    return {name: kind for name, kind in shipped.items() if kind and issubclass(kind, SetModel)} | NETWORKS


def _split(settings: Mapping[str, Any], key: str, section: str) -> tuple[Any, dict[str, Any]]:
    """Return the value of one key, and the other settings."""
    if key not in settings:
        raise ConfigError(f"{section} lacks the setting {key!r}.")
    return settings[key], {name: value for name, value in settings.items() if name != key}


def _look_up(known: Mapping[str, T], name: object, what: str) -> T:
    if not isinstance(name, str) or name not in known:
        raise ConfigError(f"{what} = {name!r}; choose one of: {', '.join(known)}.")
    return known[name]


def _sampler(section: Mapping[str, Any], name: str) -> TaskSampler | EmbeddingPrior:
    kind, settings = _split(section, "kind", name)
    sampler: TaskSampler | EmbeddingPrior = from_dict(cast(Any, _look_up(TASKS, kind, f"{name} has kind")), settings)
    return sampler


def _check_features(recipe: Recipe, batch: TaskBatch) -> None:
    """Require that network and tasks have the same number of features."""
    given = batch.x.shape[2]
    expected = to_dict(recipe.model).get("n_features", given)
    if expected != given:
        raise ConfigError(
            f"[model] has n_features = {expected}, but the points of [tasks] have {given} features. Make them equal."
        )


def _run_settings(recipe: Recipe) -> dict[str, Any]:
    """Return the settings that determine the result: all except the name and the summary."""
    return {key: value for key, value in recipe.source.items() if key not in {"name", "summary"}}


def _load_start_weights(start: str | Path, model: SetModel, method: str) -> dict[str, str]:
    """Load initial weights into the model; return their name and digest for the card."""
    path = pretrained_path(start)
    arrays, card = load_checkpoint(path)
    if card.get("method") != method:
        raise WeightsError(
            f"start = {str(start)!r} has weights of the method {card.get('method')!r}, but the recipe is for "
            f"{method!r}. Choose other weights."
        )
    own = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    given = {name: value.shape for name, value in arrays.items()}
    unlike = [name for name in sorted(own.keys() | given.keys()) if own.get(name) != given.get(name)]
    if unlike:
        first = unlike[0]
        raise WeightsError(
            f"start = {str(start)!r} does not fit the recipe's [model]: {len(unlike)} tensors differ, such as "
            f"{first!r}, of shape {given.get(first, 'none')} there and {own.get(first, 'none')} here. "
            f"Copy its settings: {card.get('model')}."
        )
    model.load_state_dict(to_tensors(arrays))
    return {"name": str(card.get("name", path.stem)), "sha256": file_digest(path)}
