"""Ship a trained checkpoint with Coterie: copy it to the weights and add it to the index.

python recipes/register.py NAME.safetensors
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from coterie.checkpoint import load_checkpoint
from coterie.errors import CoterieError, WeightsError
from coterie.files import write_atomically
from coterie.pretrained.registry import INDEX, Pretrained, file_digest, is_name, read_index

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "coterie" / "pretrained"
HEADER = "# The weights that ship with Coterie, by name. Written by recipes/register.py.\n"
_VERSIONED = re.compile(r".+-v[1-9]\d*")


def register(checkpoint: Path, package: Path = PACKAGE) -> str:
    """Copy a checkpoint into the package under the name on its card; return the name.

    Parameters
    ----------
    checkpoint : Path
        File that ``coterie learn`` wrote.
    package : Path
        Folder of the index and the weights.

    Raises
    ------
    WeightsError
        If the card is incomplete, the name has no version, or the name is taken by other weights.
    """
    _, card = load_checkpoint(checkpoint)
    missing = [key for key in ("name", "method", "summary", "recipe") if key not in card]
    if missing:
        raise WeightsError(
            f"The card of {str(checkpoint)!r} has no {', '.join(missing)}. Register a file that `coterie learn` wrote."
        )
    name = str(card["name"])
    if not is_name(name) or not _VERSIONED.fullmatch(name):
        raise WeightsError(
            f"The name {name!r} must look like 'dac-mog2d-v1': lower case, with a version. Change it in the recipe."
        )
    entry = Pretrained(f"{name}.safetensors", file_digest(checkpoint), card["method"], card["summary"])
    entries = read_index(package)
    known = entries.get(name, entry).sha256
    if known != entry.sha256:
        raise WeightsError(
            f"{name!r} is the name of other weights (SHA-256 {known[:9]}, not {entry.sha256[:9]}), and the weights "
            "behind a name never change. Use the next version in the recipe."
        )
    # Write the file first, so that the index never lists a missing file.
    write_atomically(package / entry.file, checkpoint.read_bytes(), force=True)
    write_atomically(package / INDEX, index_text(entries | {name: entry}), force=True)
    return name


def index_text(entries: Mapping[str, Pretrained]) -> str:
    """Format the index as TOML, sorted by name."""
    text = HEADER
    for name in sorted(entries):
        # TOML escapes strings as JSON does.
        lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in asdict(entries[name]).items())
        text += f"\n[{name}]\n{''.join(lines)}"
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Register the file given on the command line."""
    parser = argparse.ArgumentParser(description="Ship a trained checkpoint with Coterie.")
    parser.add_argument("checkpoint", type=Path, metavar="NAME.safetensors", help="file that coterie learn wrote")
    try:
        name = register(parser.parse_args(arguments).checkpoint)
    except CoterieError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{name} registered; commit {INDEX} and {name}.safetensors\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
