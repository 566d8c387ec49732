"""Encoders: texts or images -> embeddings to cluster, by a network from a folder or the hub, or by a function.

Weights are read from safetensors files alone, and no code that comes with them is run.
"""

import hashlib
import json
import os
import reprlib
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt

from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.errors import InputError, MissingExtraError, OutputError, WeightsError, import_extra
from coterie.progress import Callback, Progress

Kind: TypeAlias = Literal["text", "image", "any"]
Inputs: TypeAlias = list[str] | npt.NDArray[np.uint8]  # texts, or images (n, height, width, 1 or 3)
Embeddings: TypeAlias = npt.NDArray[np.float32]

_TEXTS_PER_BATCH, _IMAGES_PER_BATCH = 256, 64
_SENTENCE_TRANSFORMERS, _TIMM = "sentence-transformers", "timm"
_FORMS = "'sentence-transformers:NAME', 'timm:NAME', the path of a folder with weights, or a function"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "sentencepiece.bpe.model", "spiece.model")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_OTHER_BACKENDS = ("onnx", "openvino")  # sub-folders with the same weights for programs other than torch
_DOWNLOADED = ["*.json", "*.txt", "*.model", "*.safetensors"]  # neither pickles nor Python modules
_MAIN_WEIGHTS = "model.safetensors"
# What timm needs to know of the weights: their input and the names of their first and last layers. Where else to look
# for weights is left out.
_TIMM_SETTINGS = (
    *("input_size", "fixed_input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode"),
    *("num_classes", "pool_size", "first_conv", "classifier"),
)


@final
@dataclass(frozen=True, eq=False)
class Encoder:
    """Maps texts or images to embeddings, in batches; `load_encoder` makes one.

    Examples
    --------
    >>> import numpy as np
    >>> encoder = load_encoder(lambda texts: np.array([[len(text), text.count("a")] for text in texts]))
    >>> encoder.encode(["banana", "fig"])
    array([[6., 3.],
           [3., 0.]], dtype=float32)
    """

    function: Callable[[Any], Any] = field(repr=False)
    """Maps a list of texts, or images uint8 (n, height, width, 3), to an array (n, d)."""
    kind: Kind = "any"  # what it takes
    name: str | None = None  # what `load_encoder` loads it again from; None for a function
    cache_name: str | None = None  # what its cached embeddings are filed under; None if they are not cached
    folder: Path | None = None  # where its weights are; None for a function

    def encode(self, inputs: Any, callback: Callback | None = None) -> Embeddings:
        """Compute the embeddings of texts or images.

        Parameters
        ----------
        inputs : sequence of str, or uint8 array (n, height, width[, channels])
            Texts, or images with one channel (grey) or three.
        callback : callable, optional
            Called with a ``coterie.progress.Progress`` after each batch; its steps are inputs.

        Returns
        -------
        array (n, d) of float32
        """
        inputs = _check_inputs(inputs, self.kind)
        images = isinstance(inputs, np.ndarray)
        step = _IMAGES_PER_BATCH if images else _TEXTS_PER_BATCH
        started = time.monotonic()
        blocks: list[Embeddings] = []
        for start in range(0, len(inputs), step):
            batch = inputs[start : start + step]
            width = blocks[0].shape[1] if blocks else None
            result = self.function(_with_three_channels(batch) if isinstance(batch, np.ndarray) else batch)
            blocks.append(self._check_result(result, start, len(batch), width))
            if callback is not None:
                done, seconds = start + len(batch), time.monotonic() - started
                stage = "encoding images" if images else "encoding texts"
                callback(Progress(step=done, steps=len(inputs), seconds=seconds, stage=stage))
        return np.concatenate(blocks)

    def _check_result(self, result: Any, start: int, rows: int, width: int | None) -> Embeddings:
        """Return the result for one batch as an array; `start` is its first input, `width` that of earlier batches."""
        who = "The encoder" if self.name is None else f"The encoder {self.name!r}"
        if hasattr(result, "detach"):  # a tensor, perhaps on a GPU or of a type that numpy lacks
            result = result.detach().cpu().float()
        try:
            with np.errstate(over="ignore"):  # reported below as an infinite value
                embeddings = np.asarray(result, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{who} returned {type(result).__name__}, which is no array of numbers ({error}). "
                "It must return an array (n, d) with one row per input."
            ) from error
        if embeddings.ndim != 2 or len(embeddings) != rows or embeddings.shape[1] == 0:
            raise InputError(
                f"{who} returned an array of shape {embeddings.shape} for {rows:,} inputs. "
                f"It must return one row per input: ({rows}, d)."
            )
        if width is not None and embeddings.shape[1] != width:
            raise InputError(
                f"{who} returned {embeddings.shape[1]:,} columns for the inputs from {start:,} on, but {width:,} for "
                "those before. It must return the same number of columns for every batch."
            )
        finite = np.isfinite(embeddings).all(axis=1)
        if not finite.all():
            raise InputError(
                f"{who} returned a value that is missing or infinite for input {start + int(finite.argmin()):,}. "
                "Check that input, or remove it."
            )
        return embeddings


def load_encoder(spec: Any, *, device: str = "auto") -> Encoder:
    """Load an encoder of texts or images.

    Parameters
    ----------
    spec : str, Path, callable or Encoder
        One of:

        - ``"sentence-transformers:NAME"``: a text encoder from the Hugging Face hub (extra ``text``), which is
          downloaded unless it is there already
        - ``"timm:NAME"``: an image encoder from the hub (extra ``vision``)
        - the path of a folder with weights of one of the two, with or without this prefix; nothing is downloaded
        - a function that takes a list of texts, or images as a uint8 array (n, height, width, 3), and returns an array
          (n, d). It is called with one batch at a time. `encode_cached` caches its results if it has an attribute
          ``name``, which must change when its results change.
    device : str
        Torch device of a network: "auto" (a GPU if there is one), "cpu", "cuda", ...

    Returns
    -------
    Encoder
    """
    if isinstance(spec, Encoder):
        return spec
    if isinstance(spec, str | os.PathLike):
        return _load_network(os.fspath(spec), device)
    if callable(spec):
        name = getattr(spec, "name", None)
        return Encoder(spec, cache_name=f"function {name}" if isinstance(name, str) and name else None)
    raise InputError(f"The encoder {spec!r} is not known. Give {_FORMS}.")


def encode_cached(
    encoder: Encoder, inputs: Any, cache: str | Path | None, callback: Callback | None = None
) -> Embeddings:
    """Compute embeddings, or read those of an earlier call from a folder; equal inputs are encoded once.

    The file of the embeddings depends on the encoder's name, its weights and the content of all inputs. One that is
    damaged is written again. A function without a ``name`` is not cached.

    Parameters
    ----------
    encoder : Encoder
        What `load_encoder` returned.
    inputs : sequence of str, or uint8 array (n, height, width[, channels])
        Texts or images, as for `Encoder.encode`.
    cache : str, Path or None
        Folder of the files, which is created if necessary; None to read and write none.
    callback : callable, optional
        Called with a ``coterie.progress.Progress`` after each batch.

    Returns
    -------
    array (n, d) of float32
    """
    inputs = _check_inputs(inputs, encoder.kind)
    digests = _digests(inputs)
    rows, positions = _distinct(digests)
    path = None
    if cache is not None and encoder.cache_name is not None:
        key = _cache_key(encoder, (digests[row] for row in rows))
        path = _make_folder(Path(cache)) / f"embeddings-{key}.safetensors"
        embeddings = _read_embeddings(path, len(rows))
        if embeddings is not None:
            return embeddings[positions]
    if len(rows) < len(inputs):
        inputs = inputs[rows] if isinstance(inputs, np.ndarray) else [inputs[row] for row in rows]
    embeddings = encoder.encode(inputs, callback)
    if path is not None:
        save_checkpoint(path, {"embeddings": embeddings}, {"encoder": encoder.cache_name}, force=True)
    return embeddings[positions]


def _check_inputs(inputs: Any, kind: Kind) -> Inputs:
    """Return a list of texts, or images (n, height, width, channels)."""
    if isinstance(inputs, np.ndarray) and inputs.ndim > 2:
        checked: Inputs = _check_images(inputs)
    elif isinstance(inputs, str) or not isinstance(inputs, Iterable):
        raise InputError(
            f"The inputs are {reprlib.repr(inputs)}. Give a list of texts, or images (n, height, width, 3)."
        )
    else:
        checked = _check_texts(list(inputs))
    if len(checked) == 0:
        raise InputError("There are no inputs to encode. Give at least one text or image.")
    given: Kind = "image" if isinstance(checked, np.ndarray) else "text"
    if kind not in {"any", given}:
        raise InputError(f"The encoder takes {kind}s, but the inputs are {given}s. Use an encoder of {given}s.")
    return checked


def _check_texts(texts: list[Any]) -> list[str]:
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"Input {i:,} is {reprlib.repr(text)} ({type(text).__name__}), not a text. Remove or replace it; "
                "images must be one uint8 array (n, height, width, 3)."
            )
    return texts


def _check_images(images: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    if images.dtype != np.uint8:
        raise InputError(
            f"The images have the type {images.dtype}. Convert them to uint8, with black as 0 and white as 255."
        )
    shaped = images[..., None] if images.ndim == 3 else images
    if shaped.ndim != 4 or shaped.shape[3] not in {1, 3} or 0 in shaped.shape[1:]:
        raise InputError(f"The images have the shape {images.shape}. It must be (n, height, width, 3), channels last.")
    return shaped


def _with_three_channels(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return np.array(np.broadcast_to(images, (*images.shape[:3], 3)), order="C")  # torch wants writable memory


def _digests(inputs: Inputs) -> list[bytes]:
    """Return a digest of each input."""
    if isinstance(inputs, np.ndarray):
        shape = repr(inputs.shape[1:]).encode()
        return [hashlib.sha256(shape + image.tobytes()).digest() for image in inputs]
    return [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in inputs]


def _distinct(values: Sequence[Hashable]) -> tuple[list[int], npt.NDArray[np.int64]]:
    """Return the first row of each distinct value, and the position of each row's value among them."""
    numbers: dict[Hashable, int] = {}
    rows: list[int] = []
    positions = np.empty(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        positions[row] = numbers.setdefault(value, len(rows))
        if positions[row] == len(rows):
            rows.append(row)
    return rows, positions


def _cache_key(encoder: Encoder, digests: Iterable[bytes]) -> str:
    key = hashlib.sha256(json.dumps([encoder.cache_name, _weights_digest(encoder.folder)]).encode())
    for digest in digests:
        key.update(digest)
    return key.hexdigest()


def _weights_digest(folder: Path | None) -> str:
    """Return a digest of the files that determine embeddings: a folder may get other weights under the same name."""
    digest = hashlib.sha256()
    for path in [] if folder is None else _files(folder):
        if path.suffix in {".safetensors", ".json"}:
            digest.update(f"{path.relative_to(folder or '').as_posix()} {path.stat().st_size} ".encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _make_folder(folder: Path) -> Path:
    """Create the folder of the cache, before embeddings are computed that it could not take."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"The folder {str(folder)!r} of cached embeddings cannot be created: {error.strerror or error}. "
            "Give another folder."
        ) from error
    return folder


def _read_embeddings(path: Path, rows: int) -> Embeddings | None:
    """Return cached embeddings; None if there are none, or they are damaged or of another shape."""
    try:
        embeddings = load_checkpoint(path)[0].get("embeddings")
    except WeightsError:
        return None
    if embeddings is None or embeddings.dtype != np.float32 or embeddings.ndim != 2 or len(embeddings) != rows:
        return None
    return embeddings


def _load_network(spec: str, device: str) -> Encoder:
    """Load the network that a string names: from a folder if there is one of that path, otherwise from the hub."""
    library, name, folder = find_encoder(spec)
    kind, load, download = _LOADERS[library]
    purpose = f"The encoder {spec!r} needs {library}"
    function_of = partial(load, device=device, purpose=purpose)
    if not folder.is_dir():
        folder = download(name, purpose)
    _check_weights(folder)
    try:
        function = function_of(folder)
    except (MissingExtraError, WeightsError):
        raise
    except Exception as error:  # libraries raise anything on weights that do not fit
        raise WeightsError(
            f"The weights of the encoder {spec!r} cannot be loaded: {_first_line(error)}. "
            f"Check the folder {str(folder)!r}."
        ) from error
    return Encoder(function, kind, name=spec, cache_name=spec, folder=folder)


def find_encoder(spec: str) -> tuple[str, str, Path]:
    """Return the library, the name and the folder of the encoder that a string names; nothing is loaded."""
    library, _, name = spec.partition(":")
    if library not in _LOADERS or not name:
        library, name = "", spec
    folder = Path(name).expanduser()
    if folder.is_dir():
        library = _recognise_library(folder, library)
    elif _is_path(name):
        raise WeightsError(f"There is no folder {name!r} with weights of an encoder. Check the path.")
    elif not library:
        raise InputError(f"The encoder {spec!r} is neither a folder nor a known name. Give {_FORMS}.")
    return library, name, folder


def _is_path(name: str) -> bool:
    """Return whether a name can only be a path, so that a misspelt one is not looked up on the hub."""
    return name.startswith((".", "~")) or Path(name).is_absolute() or "\\" in name or name.count("/") > 1


def _recognise_library(folder: Path, library: str) -> str:
    """Return the library that a folder's weights are for; `library` is what the user said, or empty."""
    has_tokenizer = any((folder / name).is_file() for name in _TOKENIZER_FILES)
    config = _read_config(folder)
    if (folder / "modules.json").is_file() or (config and "architecture" not in config and has_tokenizer):
        found = _SENTENCE_TRANSFORMERS
    elif "architecture" in config and (folder / _MAIN_WEIGHTS).is_file():
        found = _TIMM
    else:
        raise WeightsError(
            f"The folder {str(folder)!r} has no weights of an encoder that is known. For texts it needs modules.json, "
            "or config.json and a tokenizer; for images config.json with an 'architecture', and model.safetensors."
        )
    if library not in {"", found}:
        raise WeightsError(f"The folder {str(folder)!r} has weights for {found}, not {library}. Use '{found}:...'.")
    return found


def _read_config(folder: Path) -> dict[str, Any]:
    """Return the content of config.json; empty if there is none."""
    path = folder / "config.json"
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightsError(f"{str(path)!r} cannot be read as JSON: {error}. Get the folder again.") from error
    return config if isinstance(config, dict) else {}


def _check_weights(folder: Path) -> None:
    """Reject weights that are pickled, and modules that come with their own code."""
    files = _files(folder)
    safe = [path for path in files if path.suffix == ".safetensors"]
    # In the folders of modules only that name is read; the main network may be split into several files.
    replaced = {path.parent for path in safe if path.name == _MAIN_WEIGHTS or path.parent == folder}
    pickled = [path for path in files if path.suffix in _PICKLES and path.parent not in replaced]
    if pickled or not safe:
        found = f"only as {pickled[0].name!r}, which is pickled" if pickled else "as no file"
        raise WeightsError(
            f"The folder {str(folder)!r} has weights {found}. Only safetensors files are read: convert the weights, "
            "or choose an encoder that has model.safetensors."
        )
    modules = folder / "modules.json"
    types = [str(module["type"]) for module in json.loads(modules.read_text("utf-8"))] if modules.is_file() else []
    foreign = [name for name in types if not name.startswith("sentence_transformers.")]
    if foreign:
        raise WeightsError(
            f"The folder {str(folder)!r} needs code of its own ({foreign[0]!r}), which is not run. "
            "Choose another encoder, or load this one yourself and give a function."
        )


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder that torch may need, in a fixed order."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if path.relative_to(folder).parts[0] not in _OTHER_BACKENDS]


def _download(repository: str, extra: str, purpose: str) -> Path:
    """Download what is needed of a repository of the Hugging Face hub, or return the folder of an earlier download."""
    hub = _import("huggingface_hub", extra, purpose)
    try:
        return Path(
            hub.snapshot_download(
                repository, allow_patterns=_DOWNLOADED, ignore_patterns=[f"{name}/*" for name in _OTHER_BACKENDS]
            )
        )
    except Exception as error:  # of the connection, of the hub, or of the disk
        raise WeightsError(
            f"The weights {repository!r} cannot be downloaded from huggingface.co: {_first_line(error)}. "
            "Check the name and the connection, or give the path of a folder that has them."
        ) from error


def _download_sentence_transformer(name: str, purpose: str) -> Path:
    return _download(name if "/" in name else f"sentence-transformers/{name}", "text", purpose)


def _load_sentence_transformer(folder: Path, *, device: str, purpose: str) -> Callable[[list[str]], Any]:
    library = _import("sentence_transformers", "text", purpose)
    with _progress_bars_disabled():
        model = library.SentenceTransformer(
            str(folder),
            device=None if device == "auto" else device,
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs={"use_safetensors": True},
        )
    return partial(model.encode, show_progress_bar=False, convert_to_numpy=True)


@contextmanager
def _progress_bars_disabled() -> Iterator[None]:
    """Keep transformers from showing a bar for reading weights, which takes a moment."""
    logging = import_module("transformers.utils.logging")
    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()


def _download_timm(name: str, purpose: str) -> Path:
    if "/" in name:
        return _download(name, "vision", purpose)
    timm = _import("timm", "vision", purpose)
    try:
        config = timm.get_pretrained_cfg(name)
    except RuntimeError as error:  # the architecture exists, but not with these weights
        raise WeightsError(
            f"timm has no weights {name!r}: {_first_line(error)}. See timm.list_pretrained()."
        ) from error
    repository = getattr(config, "hf_hub_id", None)
    if not repository:
        raise WeightsError(f"timm has no weights {name!r} on huggingface.co. See timm.list_pretrained().")
    return _download(repository, "vision", purpose)


def _load_timm(folder: Path, *, device: str, purpose: str) -> Callable[[npt.NDArray[np.uint8]], Any]:
    timm = _import("timm", "vision", purpose)
    torch = _import("torch", "vision", purpose)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    config = _read_config(folder)
    # In early files, the settings are not in a group of their own.
    settings = {"num_classes": config.get("num_classes"), **config.get("pretrained_cfg", config)}
    known = {name: settings[name] for name in _TIMM_SETTINGS if settings.get(name) is not None}
    weights = {"file": str(folder / _MAIN_WEIGHTS), "source": "", "custom_load": False, "label_offset": 0}
    # Created with all its classes: without them timm would accept any file, and leave weights that it lacks random.
    model = timm.create_model(
        config["architecture"],
        pretrained=True,
        pretrained_cfg_overlay={**known, **weights},
        **config.get("model_args", {}),
    )
    model.reset_classifier(0)  # embeddings instead of classes
    model = model.eval().to(device)
    expected = timm.data.resolve_model_data_config(model)
    channels, *size = expected["input_size"]
    if channels != 3:
        raise WeightsError(f"The network in {str(folder)!r} takes images with {channels} channels. Use one for three.")
    mode = "bicubic" if expected["interpolation"] == "bicubic" else "bilinear"
    mean, std = (torch.tensor(expected[name], device=device).reshape(3, 1, 1) for name in ("mean", "std"))

    def resize(image: Any) -> Any:
        """Resize the whole image: what is at its border may matter."""
        pixels = image.permute(2, 0, 1)[None].to(device).float() / 255
        resized = torch.nn.functional.interpolate(pixels, size, mode=mode, antialias=True, align_corners=False)
        return (resized.clamp(0, 1) - mean) / std

    def encode(images: npt.NDArray[np.uint8]) -> Any:
        with torch.inference_mode():
            return model(torch.cat([resize(image) for image in torch.from_numpy(images)]))

    return encode


def _first_line(error: Exception) -> str:
    """Return what an error of another library says, without the lines that follow."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".:!")


def _import(module: str, extra: str, purpose: str) -> Any:
    """Import an optional dependency; the error tells one that is missing from one that does not fit the others."""
    try:
        return import_extra(module, extra=extra, purpose=purpose)
    except MissingExtraError:
        raise
    except (ImportError, OSError, RuntimeError) as error:  # such as a torchvision that was built for another torch
        raise MissingExtraError(
            f"{purpose}, but {module} cannot be imported: {_first_line(error)}. It may be a torchvision that does not "
            "fit torch: install both from one place. Run: pip install 'torch<2.14' torchvision --index-url "
            "https://download.pytorch.org/whl/cpu, or without --index-url for a GPU."
        ) from error


# For each library: what it encodes, what loads a network from a folder, and what downloads such a folder.
_LOADERS: dict[str, tuple[Kind, Callable[..., Callable[[Any], Any]], Callable[[str, str], Path]]] = {
    _SENTENCE_TRANSFORMERS: ("text", _load_sentence_transformer, _download_sentence_transformer),
    _TIMM: ("image", _load_timm, _download_timm),
}
