"""``coterie info``: what a model file, or shipped weights, hold."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from coterie.cli.listing import print_listing
from coterie.cli.options import InfoRequest
from coterie.cli.weights import format_size
from coterie.pretrained.registry import load_pretrained, pretrained_path
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import format_size as format_image_size
from coterie.tables.table import image_shape

_MAX_COLUMNS = 40
_UNUSED = "not used"


def run(request: InfoRequest) -> None:
    """Print what is known of a model or of weights."""
    _, card = load_pretrained(request.model)
    path = pretrained_path(request.model)
    found = {"file": str(path), "bytes": path.stat().st_size, **describe_card(card)}
    if request.json:
        sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
        return
    what = "model" if "columns" in found else "weights"
    version = f", written by Coterie {found['version']}" if "version" in found else ""
    size = format_size(found["bytes"])
    sys.stdout.write(f"{request.model}: {what} of the method {found['method']}{version}, {size}\n")
    for line in _lines(found):
        sys.stdout.write(f"{line}\n")
    if columns := found.get("columns"):
        rows = [(name, kind) for name, kind in columns.items()]
        if len(rows) > _MAX_COLUMNS:
            rows = [*rows[:_MAX_COLUMNS], (f"... and {len(rows) - _MAX_COLUMNS:,} more; --json lists all", "")]
        print_listing(("column", "kind"), rows)
    for note in found.get("notes", ()):
        sys.stdout.write(f"note: {note}\n")


def describe_card(card: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the card of a model or of weights as plain values; what it does not have is left out."""
    found: dict[str, Any] = {"method": card.get("method")}
    if "coterie" in card:
        found["version"] = card["coterie"]
    kept = ("name", "summary", "licence", "steps", "evaluation", "n_clusters", "sizes", "confidence", "chosen")
    found |= {name: card[name] for name in (*kept, "rule") if card.get(name) is not None}
    if "confidence" in card and card.get("parameters", {}).get("n_clusters") == 1:
        found.pop("confidence", None)  # one cluster was asked for
    features = card.get("model", {}).get("n_features")
    if "encoder" in card:
        encoder = TableEncoder.from_card(card["encoder"])
        shape = image_shape(encoder.names)
        if shape is not None:
            found["images"] = f"{format_image_size(shape)}, {'grey' if shape[2] == 1 else 'colour'}"
        found["columns"] = describe_columns(encoder) if shape is None else {}
        found["notes"] = [*card["encoder"]["notes"], *card.get("notes", ())]
    elif features is not None:
        found["n_features"] = features
    if given := {name: value for name, value in card.get("parameters", {}).items() if value is not None}:
        found["parameters"] = given
    return found


def describe_columns(encoder: TableEncoder) -> dict[str, str]:
    """Return the kind of each column: number, boolean, date, category with its number of levels, or not used."""
    kinds: dict[str, str] = {}
    levels = Counter(feature.column for feature in encoder.features if feature.kind == "category")
    for feature in encoder.features:
        kinds.setdefault(feature.column, feature.kind)
    return {
        name: f"category, {levels[name]} levels" if kinds.get(name) == "category" else kinds.get(name, _UNUSED)
        for name in encoder.names
    }


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what there is to say in one line each."""
    chosen, evaluation = found.get("chosen"), found.get("evaluation", {})
    meaning = "expected adjusted Rand index" if chosen else "probability of a single cluster"
    sizes = f", of {', '.join(f'{size:,}' for size in found['sizes'])} rows" if "sizes" in found else ""
    formats = {
        "summary": "{}",
        "n_clusters": "clusters: {}" + sizes,
        "confidence": "confidence: {:.2f} (" + meaning + ")",
        "rule": "new rows are assigned by: {}",
        "images": "images: {}",
        "n_features": "features: {}",
        "steps": "trained for: {:,} steps",
        "licence": "licence: {}",
    }
    yield from (text.format(found[name]) for name, text in formats.items() if name in found)
    if chosen:
        yield f"found by: {chosen['algorithm']} on {chosen['columns']} columns"
    if "adjusted_rand_index" in evaluation:
        yield f"adjusted Rand index on held-out data: {evaluation['adjusted_rand_index']:.3f}"
