"""Let a trained checkpoint ship with Coterie: copy it among the weights, and add it to the index.

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
from coterie.pretrained.registry import INDEX, Pretrained, file_digest, is_name, read_index
from coterie.files import write_atomically

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
        Folder that has the index and the weights.

    Raises
    ------
    WeightsError
        If the card lacks something, the name has no version, or the name stands for other weights already.
    """
    _, card = load_checkpoint(checkpoint)
    lacking = [key for key in ("name", "method", "summary", "recipe") if key not in card]
    if lacking:
        raise WeightsError(
            f"The card of {str(checkpoint)!r} has no {', '.join(lacking)}. Register what `coterie learn` wrote."
        )
    name = str(card["name"])
    if not is_name(name) or not _VERSIONED.fullmatch(name):
        raise WeightsError(
            f"Weights that ship are called like 'dac-mog2d-v1'; got {name!r}. Rename them in the recipe."
        )
    entry = Pretrained(f"{name}.safetensors", file_digest(checkpoint), card["method"], card["summary"])
    entries = read_index(package)
    known = entries.get(name, entry).sha256
    if known != entry.sha256:
        raise WeightsError(
            f"{name!r} stands for other weights already (SHA-256 {known[:9]}, not {entry.sha256[:9]}), and what a name "
            "stands for never changes. Give the recipe a name with the next version."
        )
    # The file comes first: an index never names what is not there.
    write_atomically(package / entry.file, checkpoint.read_bytes(), force=True)
    write_atomically(package / INDEX, index_text(entries | {name: entry}), force=True)
    return name


def index_text(entries: Mapping[str, Pretrained]) -> str:
    """The index as TOML, in the order of the names."""
    text = HEADER
    for name in sorted(entries):
        # What JSON escapes in a text, TOML escapes in the same way.
        lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in asdict(entries[name]).items())
        text += f"\n[{name}]\n{''.join(lines)}"
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Register the file that the command line names."""
    parser = argparse.ArgumentParser(description="Let a trained checkpoint ship with Coterie.")
    parser.add_argument("checkpoint", type=Path, metavar="NAME.safetensors", help="file that coterie learn wrote")
    try:
        name = register(parser.parse_args(arguments).checkpoint)
    except CoterieError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{name} is registered; commit {INDEX} and {name}.safetensors\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
