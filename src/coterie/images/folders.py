"""Folders of image files -> a table of pixels, or images with their classes."""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, final

import numpy as np
import numpy.typing as npt

from coterie.errors import CoterieError, MissingExtraError, TableError
from coterie.tables.table import Array, Table, listed, pixel_names, size_in_words

OnProgress: TypeAlias = Callable[[int, int], None]
"""Called with how many images are read, and of how many."""
Size: TypeAlias = tuple[int, int]
"""Height and width."""
Result = TypeVar("Result")

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff")
FILE, FOLDER = "file", "folder"
"""Names under which a table of images has their files, and the sub-folders that these are in."""

_LONGEST_SIDE = 64
_UPRIGHT, _LYING = 1, 5  # EXIF's orientation; from 5 on, an image is stored lying on its side
_ORIENTATION = 0x0112
_CAMERA_FORMATS = ("JPEG", "MPO", "TIFF", "WEBP")
_DEEP_GREY = ("I", "I;16", "I;16L", "I;16B", "I;16N")
_GREY = ("1", "L", "LA", "La", *_DEEP_GREY)
_WITH_ALPHA = ("RGBA", "RGBa", "LA", "La", "PA")
# Compression leaves a trace of colour in what is grey.
_TRACE_OF_COLOUR = 8


@final
@dataclass(frozen=True, eq=False)
class ImageClasses:
    """Images that somebody has sorted into one folder for each class.

    Parameters
    ----------
    images : array (n, height, width, channels) of uint8
        One channel if all are grey, otherwise red, green and blue.
    classes : array (n,) of int64
        The place of each image's class among `names`.
    names : tuple of str
        Names of the sub-folders, in alphabetical order.
    files : tuple of str
        Where each image is from, beginning at the folder.
    notes : tuple of str
        What was done to the images, in sentences for the user.
    """

    images: npt.NDArray[np.uint8]
    classes: npt.NDArray[np.int64]
    names: tuple[str, ...]
    files: tuple[str, ...]
    notes: tuple[str, ...]


@final
@dataclass(frozen=True)
class _Header:
    """What a file says of its image before its pixels are read."""

    size: Size
    grey: bool


def read_images(
    folder: str | Path,
    *,
    size: Size | None = None,
    channels: int | None = None,
    on_progress: OnProgress | None = None,
) -> Table:
    """Read all images in a folder and its sub-folders as the rows of a table, whose columns are the pixels.

    Parameters
    ----------
    folder : str or Path
        Has .png, .jpg, .jpeg, .gif, .bmp, .webp, .tif or .tiff files; others are passed over, and so are hidden ones.
    size : (height, width), optional
        What all images are brought to. By default the size that most of them have, shrunk so that the longer side is
        64 pixels if it is longer.
    channels : {1, 3}, optional
        1 for grey, 3 for colour; by default colour if there is an image that has some.
    on_progress : callable, optional
        Called after each image with the number of those that are read, and of all.

    Returns
    -------
    Table
        In the order of the files' names. These are in `side` as "file", beginning at the folder; where there are
        sub-folders, their names are there as "folder", and None for files that are in none. `notes` tell what was done.

    Raises
    ------
    TableError
        When there is no image, or a file is none although its ending says so.
    MissingExtraError
        When Pillow is not installed.
    """
    folder = Path(folder)
    files, passed_over = _image_files(folder)
    images, notes = _decoded(folder, files, size, channels, on_progress)
    height, width, depth = images.shape[1:]
    side = {FILE: _texts([file.as_posix() for file in files])}
    if any(file.parent.name for file in files):
        side[FOLDER] = _texts([file.parent.as_posix() if file.parent.name else None for file in files])
    return Table(
        pixel_names((height, width, depth)),
        block=images.reshape(len(images), -1),
        named=False,
        side=side,
        notes=(*passed_over, *notes),
        source=folder.resolve().name,
        image=(height, width, depth),
    )


def read_image_classes(
    folder: str | Path,
    *,
    size: Size | None = None,
    channels: int | None = None,
    on_progress: OnProgress | None = None,
) -> ImageClasses:
    """Read a folder that has one sub-folder of images for each class.

    Parameters
    ----------
    folder : str or Path
        Each folder in it is a class, with all images in it and below.
    size, channels, on_progress
        As of `read_images`.

    Returns
    -------
    ImageClasses
        Images, classes, and their names.

    Raises
    ------
    TableError
        As `read_images`; and when an image is in no sub-folder, or a sub-folder has none.
    """
    folder = Path(folder)
    files, passed_over = _image_files(folder)
    loose = [file.name for file in files if len(file.parts) == 1]
    if loose:
        raise TableError(
            f"{str(folder)!r} should have one sub-folder for each class, and {len(loose):,} of its images are in none: "
            f"{listed(loose, 3)}; put them into the folder of their class"
        )
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    place = {name: i for i, name in enumerate(names)}
    empty = sorted(place.keys() - {file.parts[0] for file in files})
    if empty:
        raise TableError(f"sub-folders of {str(folder)!r} without images: {listed(empty)}; remove or fill them")
    images, notes = _decoded(folder, files, size, channels, on_progress)
    return ImageClasses(
        images=images,
        classes=np.array([place[file.parts[0]] for file in files], dtype=np.int64),
        names=tuple(names),
        files=tuple(file.as_posix() for file in files),
        notes=(*passed_over, *notes),
    )


def _image_files(folder: Path) -> tuple[list[Path], tuple[str, ...]]:
    """Find the images in a folder and below, by their endings and in the order of their names; say what is left."""
    if not folder.is_dir():
        raise TableError(f"there is no folder {str(folder)!r}; check the path")
    below = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    seen = [file for file in below if not any(part.startswith(".") for part in file.parts)]
    files = [file for file in seen if file.suffix.lower() in IMAGE_ENDINGS]
    others = [file.as_posix() for file in seen if file.suffix.lower() not in IMAGE_ENDINGS]
    if not files:
        has = f"it has {listed(others, 3)}" if others else "it is empty"
        raise TableError(
            f"{str(folder)!r} is a folder without images, which are files that end in {', '.join(IMAGE_ENDINGS)}; "
            f"{has}. Name a folder of images, or a table"
        )
    note = f"passed over, since their endings are not those of images: {listed(others, 3)}"
    return files, (note,) if others else ()


def _decoded(
    folder: Path, files: Sequence[Path], size: Size | None, channels: int | None, on_progress: OnProgress | None
) -> tuple[npt.NDArray[np.uint8], tuple[str, ...]]:
    """Decode images one by one into one array (n, height, width, channels); say in notes what was done to them."""
    pillow = _pillow("Image")
    with warnings.catch_warnings():
        # What the library finds odd in a file is of no use to the user, unless it is too large to be meant.
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", pillow.DecompressionBombWarning)
        headers = [_opened(folder, file, _header) for file in files]
        wanted = _usual_size(headers) if size is None else size
        if min(wanted) < 1:
            raise TableError(f"images of {size_in_words(wanted)} were asked for; both numbers must be 1 or more")
        grey = all(header.grey for header in headers) if channels is None else channels == 1
        images = np.zeros((len(files), *wanted, 1 if grey else 3), dtype=np.uint8)
        coloured = False
        for place, file in enumerate(files):
            images[place] = _opened(folder, file, lambda image: _pixels(image, wanted, grey=grey))
            coloured = coloured or bool((np.ptp(images[place], axis=-1) > _TRACE_OF_COLOUR).any())
            if on_progress is not None:
                on_progress(place + 1, len(files))
    if not grey and not coloured and channels is None:
        images, grey = np.ascontiguousarray(images[..., :1]), True
    return images, _notes(headers, wanted, grey=grey, asked=channels is not None)


def _notes(headers: Sequence[_Header], wanted: Size, *, grey: bool, asked: bool) -> tuple[str, ...]:
    notes = []
    others = [header.size for header in headers if header.size != wanted]
    sizes = sorted(set(others))
    if others:
        were = f"{size_in_words(sizes[0])} pixels" if len(sizes) == 1 else f"{len(sizes):,} other sizes"
        notes.append(
            f"{len(others):,} of {len(headers):,} images had {were} (height by width), and were brought to "
            f"{size_in_words(wanted)}"
        )
    in_colour = sum(not header.grey for header in headers)
    if grey and in_colour:
        why = "as asked for" if asked else "since none shows a colour"
        notes.append(f"{in_colour:,} of {len(headers):,} images are stored in colour, and were taken as grey, {why}")
    return tuple(notes)


def _opened(folder: Path, file: Path, use: Callable[[Any], Result]) -> Result:
    """Do something with an image, and name its file if that cannot be done."""
    image_module = _pillow("Image")
    try:
        with image_module.open(folder / file) as image:
            return use(image)
    except (CoterieError, MemoryError):
        raise
    except Exception as error:  # the decoder of a damaged file may stumble over anything
        unknown = isinstance(error, image_module.UnidentifiedImageError)
        reason = "its content is of no known kind" if unknown else str(error) or type(error).__name__
        raise TableError(
            f"{file.as_posix()!r} in {str(folder)!r} cannot be read as an image: {reason}; mend or remove it"
        ) from error


def _header(image: Any) -> _Header:
    if image.mode == "F":
        raise TableError(
            f"{Path(image.filename).name!r} has fractions as pixels, of which nobody knows what is white; "
            "save it with 8 or 16 bits"
        )
    width, height = image.size
    lying = _orientation(image) >= _LYING
    return _Header((width, height) if lying else (height, width), image.mode in _GREY)


def _orientation(image: Any) -> int:
    """Tell how a camera was held; other formats are not asked, since some must be decoded to know."""
    return int(image.getexif().get(_ORIENTATION, _UPRIGHT)) if image.format in _CAMERA_FORMATS else _UPRIGHT


def _usual_size(headers: Sequence[_Header]) -> Size:
    """Return the size that most images have, made smaller if its longer side is too long."""
    height, width = Counter(header.size for header in headers).most_common(1)[0][0]
    scale = min(1.0, _LONGEST_SIDE / max(height, width))
    return max(1, round(scale * height)), max(1, round(scale * width))


def _pixels(image: Any, size: Size, *, grey: bool) -> npt.NDArray[np.uint8]:
    """Bring an image to one size (height, width), on white where it is transparent, and in grey or in colour."""
    pillow = _pillow("Image")
    height, width = size
    # Of a JPEG no more is decoded than is needed for a sharp picture of that size.
    image.draft(None, (2 * max(size), 2 * max(size)))
    if _orientation(image) != _UPRIGHT:
        image = _pillow("ImageOps").exif_transpose(image)
    if image.mode in _DEEP_GREY:  # of 16 bits, which Pillow would cut off at 8
        levels = np.asarray(image, dtype=np.float64) / 257
        image = pillow.fromarray(np.rint(np.clip(levels, 0, 255)).astype(np.uint8))
    elif image.mode in _WITH_ALPHA or "transparency" in image.info:
        white = pillow.new("RGBA", image.size, "white")
        image = pillow.alpha_composite(white, image.convert("RGBA"))
    image = image.convert("L" if grey else "RGB")
    if image.size != (width, height):
        image = image.resize((width, height), pillow.Resampling.BILINEAR, reducing_gap=3.0)
    return np.asarray(image, dtype=np.uint8).reshape(height, width, 1 if grey else 3)


def _texts(values: Sequence[str | None]) -> Array:
    texts = np.empty(len(values), dtype=object)
    texts[:] = values
    return texts


def _pillow(module: str) -> Any:
    """Import a part of Pillow, which is an extra."""
    try:
        return import_module(f"PIL.{module}")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "image files need Pillow, which is not installed; pip install 'coterie[images]'"
        ) from error
