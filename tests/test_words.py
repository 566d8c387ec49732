"""Names, docstrings, comments and messages use the field's words.

Each entry is a private word that this project once used and what to write instead.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
INSTEAD = {
    r"hearings?|opinions?|elections?|tall(y|ied)|proposals?|proposers?": "candidate, score, vote",
    r"towers?|twins?(?! ?-?contrast)|told apart|beginnings?|even_weight|sharpness|relaxation": "the paper's terms",
    r"lessons?|sorted sets?|dice|strays?|by chance": "labelled tasks, rng, outliers, at random",
    r"pictures?|photographs?": "images",
    r"surpris(e|es|ing)|believed": "negative log-likelihood, probability",
    r"mend(s|ed)?|lest|refus(e|es|ed|als?)|could not be had|so many": "fix, reject, not available, the number",
}
PATTERN = re.compile("|".join(rf"(?<![a-z])({words})(?![a-z])" for words in INSTEAD), re.IGNORECASE)
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md"), *ROOT.glob("recipes/*.toml")]
MODULES = [path for folder in ("src", "benchmarks", "examples", "tests") for path in (ROOT / folder).rglob("*.py")]


NAMES_FORMER_WORDS = [Path(__file__), ROOT / "CHANGELOG.md", ROOT / "benchmarks/protocols/judge.py"]
NAMES_FORMER_WORDS.append(ROOT / "tests/judged/test_estimator.py")
"""Files that must name former words: this one, the list of renamed things, and keys of committed results."""


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page; of a module the names, comments and strings with spaces (a single word is a key)."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), start=1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_text = token.type == tokenize.STRING and " " in token.string
        if is_text or token.type in {tokenize.NAME, tokenize.COMMENT}:
            yield token.start[0], token.string.replace("_", " ")


@pytest.mark.parametrize("path", [*PAGES, *MODULES], ids=lambda path: str(path.relative_to(ROOT)))
def test_private_words_are_gone(path: Path) -> None:
    if path in NAMES_FORMER_WORDS:
        return
    found = [f"{path.name}:{line}: {match[0]}" for line, text in prose(path) for match in PATTERN.finditer(text)]
    assert found == []
