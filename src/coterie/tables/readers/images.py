"""Folders of image files -> a table of pixels, or images with their classes."""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar, final

import numpy as np
import numpy.typing as npt

from coterie.errors import CoterieError, TableError, import_extra
from coterie.tables.table import Table, as_table, format_list, format_size, text_column
from coterie.validation import NONE, Choice, check_parameter

OnProgress: TypeAlias = Callable[[int, int], None]  # called with the number of images read and the number of all images
Size: TypeAlias = tuple[int, int]  # height and width
Result = TypeVar("Result")

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff")
FILE_COLUMN, FOLDER_COLUMN = "file", "folder"  # extra columns of a table of images: their file names and sub-folders

_PILLOW_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF")  # of these endings, in Pillow's words
_MAX_SIDE = 64
_UPRIGHT, _ROTATED = 1, 5  # EXIF orientations; from 5 on, the image is stored rotated by 90 degrees
_ORIENTATION = 0x0112
_FORMATS_WITH_EXIF = ("JPEG", "MPO", "TIFF", "WEBP")
_GREY_16_BIT = ("I", "I;16", "I;16L", "I;16B", "I;16N")
_GREY = ("1", "L", "LA", "La", *_GREY_16_BIT)
_WITH_ALPHA = ("RGBA", "RGBa", "LA", "La", "PA")
# Compression leaves small differences between the channels of a grey image.
_COLOUR_TOLERANCE = 8


@final
@dataclass(frozen=True, eq=False)
class ImageClasses:
    """Labelled images, read from a folder with one sub-folder per class."""

    images: npt.NDArray[np.uint8]  # (n, height, width, channels): one channel if all are grey, otherwise three
    classes: npt.NDArray[np.int64]  # class of each image, an index into ``names``
    names: tuple[str, ...]  # names of the sub-folders, in alphabetical order
    files: tuple[str, ...]  # file names, relative to the folder
    notes: tuple[str, ...]  # what was done to the images


class _Header(NamedTuple):
    """Size and mode of an image, read before its pixels are decoded."""

    size: Size
    grey: bool


def read_images(
    folder: str | Path, *, size: Size | None = None, channels: int | None = None, on_progress: OnProgress | None = None
) -> Table:
    """Read all images in a folder and its sub-folders as a table with one row per image and one column per pixel.

    Parameters
    ----------
    folder : str or Path
        Folder of .png, .jpg, .jpeg, .gif, .bmp, .webp, .tif or .tiff files; other files and hidden files are ignored.
    size : (height, width), optional
        Size to which all images are resized. By default the most common size, reduced so that no side is longer than
        64 pixels.
    channels : {1, 3}, optional
        1 for grey, 3 for colour; by default colour if any image has colour.
    on_progress : callable, optional
        Called after each image with the number of images read and the number of all images.

    Returns
    -------
    Table
        Rows in the order of the file names. `extra_columns` has the file names as "file" and, if there are sub-folders,
        their names as "folder" (None for files in none). `notes` say what was done to the images.
    """
    folder = Path(folder)
    files, ignored = _find_images(folder)
    images, notes = _decode_all(folder, files, size, channels, on_progress)
    extra_columns = {FILE_COLUMN: text_column([file.as_posix() for file in files])}
    if any(file.parent.name for file in files):
        folders = [file.parent.as_posix() if file.parent.name else None for file in files]
        extra_columns[FOLDER_COLUMN] = text_column(folders)
    source = folder.resolve().name
    return replace(as_table(images), extra_columns=extra_columns, notes=(*ignored, *notes), source=source)


def read_image_classes(
    folder: str | Path, *, size: Size | None = None, channels: int | None = None, on_progress: OnProgress | None = None
) -> ImageClasses:
    """Read a folder that has one sub-folder per class, which contains its images at any depth.

    The other parameters are those of `read_images`. Images in no sub-folder and empty sub-folders raise a `TableError`.
    """
    folder = Path(folder)
    files, ignored = _find_images(folder)
    unsorted = [file.name for file in files if len(file.parts) == 1]
    if unsorted:
        raise TableError(
            f"{str(folder)!r} must have one sub-folder per class, but {len(unsorted):,} of its images are in none: "
            f"{format_list(unsorted, 3)}. Move them to the folder of their class."
        )
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    index = {name: i for i, name in enumerate(names)}
    empty = sorted(index.keys() - {file.parts[0] for file in files})
    if empty:
        raise TableError(f"Sub-folders of {str(folder)!r} without images: {format_list(empty)}. Remove or fill them.")
    images, notes = _decode_all(folder, files, size, channels, on_progress)
    return ImageClasses(
        images=images,
        classes=np.array([index[file.parts[0]] for file in files], dtype=np.int64),
        names=tuple(names),
        files=tuple(file.as_posix() for file in files),
        notes=(*ignored, *notes),
    )


def _find_images(folder: Path) -> tuple[list[Path], tuple[str, ...]]:
    """Return the image files in a folder and below, sorted by name, and a note about the other files."""
    if not folder.is_dir():
        raise TableError(f"There is no folder {str(folder)!r}. Check the path.")
    below = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    visible = [file for file in below if not any(part.startswith(".") for part in file.parts)]
    files = [file for file in visible if file.suffix.lower() in IMAGE_ENDINGS]
    others = [file.as_posix() for file in visible if file.suffix.lower() not in IMAGE_ENDINGS]
    if not files:
        content = f"It contains {format_list(others, 3)}" if others else "It is empty"
        raise TableError(
            f"{str(folder)!r} is a folder without images (files that end in {', '.join(IMAGE_ENDINGS)}). "
            f"{content}. Give a folder of images, or a table."
        )
    note = f"ignored, since their endings are not those of images: {format_list(others, 3)}"
    return files, (note,) if others else ()


def _decode_all(
    folder: Path, files: Sequence[Path], size: Size | None, channels: int | None, on_progress: OnProgress | None
) -> tuple[npt.NDArray[np.uint8], tuple[str, ...]]:
    """Decode images into one array (n, height, width, channels); notes say what was done to them."""
    check_parameter("channels", channels, (Choice(1, 3), NONE), TableError)
    pillow = _import_pillow("Image")
    with warnings.catch_warnings():
        # Warnings about a file's metadata do not help the user, except that an image is suspiciously large.
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", pillow.DecompressionBombWarning)
        headers = [_with_image(folder, file, _read_header) for file in files]
        target = _common_size(headers) if size is None else size
        if min(target) < 1:
            raise TableError(f"The image size {format_size(target)} is too small. Use at least 1x1.")
        grey = all(header.grey for header in headers) if channels is None else channels == 1
        images = np.zeros((len(files), *target, 1 if grey else 3), dtype=np.uint8)
        coloured = False
        for i, file in enumerate(files):
            images[i] = _with_image(folder, file, lambda image: _to_pixels(image, target, grey=grey))
            coloured = coloured or bool((np.ptp(images[i], axis=-1) > _COLOUR_TOLERANCE).any())
            if on_progress is not None:
                on_progress(i + 1, len(files))
    if not grey and not coloured and channels is None:
        images, grey = np.ascontiguousarray(images[..., :1]), True
    return images, _describe_changes(headers, target, grey=grey, requested=channels is not None)


def _describe_changes(headers: Sequence[_Header], target: Size, *, grey: bool, requested: bool) -> tuple[str, ...]:
    notes = []
    others = [header.size for header in headers if header.size != target]
    sizes = set(others)
    if others:
        given = f"{format_size(others[0])} pixels" if len(sizes) == 1 else f"{len(sizes):,} other sizes"
        notes.append(
            f"{len(others):,} of {len(headers):,} images had {given} (height x width) and were resized to "
            f"{format_size(target)}"
        )
    in_colour = sum(not header.grey for header in headers)
    if grey and in_colour:
        reason = "as requested" if requested else "since none shows any colour"
        notes.append(
            f"{in_colour:,} of {len(headers):,} images are stored in colour and were converted to grey, {reason}"
        )
    return tuple(notes)


def _with_image(folder: Path, file: Path, use: Callable[[Any], Result]) -> Result:
    """Apply a function to an opened image; errors name the file."""
    pillow = _import_pillow("Image")
    try:
        # Pillow would try any of its plugins, whatever the file is called, and one of them runs Ghostscript.
        with pillow.open(folder / file, formats=_PILLOW_FORMATS) as image:
            return use(image)
    except (CoterieError, MemoryError):
        raise
    except Exception as error:  # decoders raise anything on damaged files
        unknown = isinstance(error, pillow.UnidentifiedImageError)
        reason = "its content is of an unknown format" if unknown else str(error) or type(error).__name__
        raise TableError(
            f"{file.as_posix()!r} in {str(folder)!r} cannot be read as an image: {reason}. Fix or remove it."
        ) from error


def _read_header(image: Any) -> _Header:
    if image.mode == "F":
        raise TableError(
            f"{Path(image.filename).name!r} has floating-point pixels, so that the value of white is unknown. "
            "Save it with 8 or 16 bits."
        )
    width, height = image.size
    rotated = _orientation(image) >= _ROTATED
    return _Header((width, height) if rotated else (height, width), image.mode in _GREY)


def _orientation(image: Any) -> int:
    """Return the EXIF orientation; of other formats upright, since some must be decoded to know."""
    return int(image.getexif().get(_ORIENTATION, _UPRIGHT)) if image.format in _FORMATS_WITH_EXIF else _UPRIGHT


def _common_size(headers: Sequence[_Header]) -> Size:
    """Return the most common size, reduced if its longer side is too long."""
    height, width = Counter(header.size for header in headers).most_common(1)[0][0]
    scale = min(1.0, _MAX_SIDE / max(height, width))
    return max(1, round(scale * height)), max(1, round(scale * width))


def _to_pixels(image: Any, size: Size, *, grey: bool) -> npt.NDArray[np.uint8]:
    """Convert an image to the size (height, width) and to grey or colour; transparent pixels become white."""
    pillow = _import_pillow("Image")
    height, width = size
    # Decode a JPEG at no more than the resolution needed for a sharp image of this size.
    image.draft(None, (2 * max(size), 2 * max(size)))
    if _orientation(image) != _UPRIGHT:
        image = _import_pillow("ImageOps").exif_transpose(image)
    if image.mode in _GREY_16_BIT:  # Pillow would clip them at 8 bits
        levels = np.asarray(image, dtype=np.float64) / 257
        image = pillow.fromarray(np.rint(np.clip(levels, 0, 255)).astype(np.uint8))
    elif image.mode in _WITH_ALPHA or "transparency" in image.info:
        white = pillow.new("RGBA", image.size, "white")
        image = pillow.alpha_composite(white, image.convert("RGBA"))
    image = image.convert("L" if grey else "RGB")
    if image.size != (width, height):
        image = image.resize((width, height), pillow.Resampling.BILINEAR, reducing_gap=3.0)
    return np.asarray(image, dtype=np.uint8).reshape(height, width, 1 if grey else 3)


def _import_pillow(module: str) -> Any:
    return import_extra(f"PIL.{module}", extra="images", purpose="Image files need Pillow")
