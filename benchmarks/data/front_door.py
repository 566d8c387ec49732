"""Fifteen files as people keep them, which the command has to cluster without any option.

`WRITERS` has a function for each file by name. It writes the file into a folder and returns its path and the true
cluster of each row. The tables are those of `first_files`, and others, with what people's files have beside them: ids,
names, e-mails, comments, dates as written, currencies, placeholders for gaps, and formats other than CSV.

    python -m benchmarks.data.front_door FOLDER --seed 1000
"""

import argparse
import json
import sqlite3
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.random import Generator
from PIL import Image
from scipy import sparse

from benchmarks.data.first_files import load_file
from benchmarks.lines import Labels

Written: TypeAlias = tuple[Path, Labels]
Write: TypeAlias = Callable[[Path, int], Written]  # folder, seed -> path, true clusters

_FIRST: Final = ("Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Frances", "John", "Jean", "Ken")
_LAST: Final = ("Miller", "Schmidt", "Rossi", "Nowak", "Garcia", "Dubois", "Jansen", "Berg", "Novak", "Silva", "Kaya")
_COMPLAINTS: Final = np.array(
    [
        "parcel",
        "late",
        "broken",
        "box",
        "refund",
        "courier",
        "damaged",
        "waiting",
        "missing",
        "wrong",
        "address",
        "returned",
    ]
)
_PRAISE: Final = np.array(
    [
        "great",
        "friendly",
        "staff",
        "lovely",
        "quick",
        "helpful",
        "recommend",
        "happy",
        "quality",
        "thanks",
        "perfect",
        "again",
    ]
)
_QUESTIONS: Final = np.array(
    [
        "how",
        "where",
        "size",
        "fits",
        "colour",
        "available",
        "when",
        "stock",
        "order",
        "manual",
        "battery",
        "compatible",
        "does",
    ]
)
_SMALL: Final = np.array(["the", "a", "is", "was", "and", "it", "my", "very", "so", "for", "of", "to", "this", "with"])


def _rng(seed: int, name: str) -> Generator:
    return np.random.default_rng([seed, *name.encode()])


def _people(rng: Generator, n: int) -> pd.DataFrame:
    """Make the columns by which people are known."""
    first, last = rng.choice(_FIRST, n), rng.choice(_LAST, n)
    number = rng.permutation(np.arange(100_000, 100_000 + 3 * n))[:n]
    return pd.DataFrame(
        {
            "customer_id": number,
            "name": [f"{a} {chr(65 + i % 26)}. {b}" for i, (a, b) in enumerate(zip(first, last, strict=True))],
            "email": [f"{a}.{b}{i}@example.org".lower() for a, b, i in zip(first, last, number, strict=True)],
        }
    )


def customers(folder: Path, seed: int) -> Written:
    """Customers with id, name, e-mail, comment, gaps as n/a, and US dollars."""
    file, rng = load_file("files/customers", seed), _rng(seed, "customers")
    frame = pd.concat([_people(rng, len(file.y)), file.frame], axis=1)
    frame["income"] = ["n/a" if pd.isna(v) else f"${v:,.2f}" for v in file.frame["income"]]
    frame["signup"] = ["" if pd.isna(v) else f"{v:%m/%d/%Y}" for v in file.frame["signup"]]
    words = np.concatenate([_COMPLAINTS, _PRAISE, _SMALL])
    frame["comment"] = [" ".join(rng.choice(words, 7)) if rng.random() < 0.4 else "" for _ in file.y]
    path = folder / "customers.csv"
    frame.to_csv(path, index=False)
    return path, file.y


def transactions(folder: Path, seed: int) -> Written:
    """Card payments with a UUID, a customer who comes back, and moments in ISO form with a time zone."""
    file, rng = load_file("files/transactions", seed), _rng(seed, "transactions")
    frame, n = file.frame.copy(), len(file.y)
    hour = frame.pop("hour").to_numpy()
    day = np.datetime64("2025-01-01") + rng.integers(0, 365, n).astype("timedelta64[D]")
    moments = day + (hour * 3600).astype("timedelta64[s]")
    frame.insert(0, "time", [f"{moment}Z" for moment in moments])
    frame.insert(0, "customer_id", rng.integers(10_000, 10_600, n))
    frame.insert(0, "id", [str(uuid.UUID(bytes=rng.bytes(16))) for _ in range(n)])
    path = folder / "transactions.csv"
    frame.to_csv(path, index=False)
    return path, file.y


def survey(folder: Path, seed: int) -> Written:
    """Answers to 18 questions, with a running number, the time of the answer and a remark."""
    file, rng = load_file("files/survey", seed), _rng(seed, "survey")
    frame, n = file.frame.copy(), len(file.y)
    frame.insert(0, "No.", np.arange(1, n + 1))
    start = np.datetime64("2026-03-02T08:00") + np.sort(rng.integers(0, 20_000, n)).astype("timedelta64[m]")
    frame.insert(1, "submitted", [f"{pd.Timestamp(moment):%d %b %Y %H:%M}" for moment in start])
    frame["remarks"] = [" ".join(rng.choice(_SMALL, 9)) if rng.random() < 0.2 else "-" for _ in range(n)]
    path = folder / "survey.tsv"
    frame.to_csv(path, index=False, sep="\t")
    return path, file.y


def german_export(folder: Path, seed: int) -> Written:
    """Customers as a German program exports them: Latin-1, semicolons, decimal commas, euros, day before month."""
    file = load_file("files/customers", seed)
    frame, rng = file.frame, _rng(seed, "german")

    def euros(value: float) -> str:
        return "k.A." if pd.isna(value) else f"{value:,.2f} €".replace(",", "_").replace(".", ",").replace("_", ".")

    table = {
        "Kundennr": rng.permutation(np.arange(7_000, 7_000 + 2 * len(frame), 2)),
        "Alter": frame["age"].map(lambda v: "" if pd.isna(v) else f"{v:.0f}"),
        "Einkommen": frame["income"].map(euros),
        "Bestellungen": frame["orders"].map(lambda v: "" if pd.isna(v) else f"{v:.0f}"),
        "Straße": [f"Lange Straße {i % 97}, Haus {i}" for i in range(len(frame))],
        "Tarif": frame["plan"].map({"basic": "Grundtarif", "plus": "Plus", "family": "Familie"}),
        "Angemeldet": frame["signup"].map(lambda v: "" if pd.isna(v) else f"{v:%d.%m.%Y}"),
        "Rabatt": [f"{v:.1f} %".replace(".", ",") for v in rng.uniform(0, 15, len(frame))],
    }
    path = folder / "kunden.csv"
    path.write_bytes(pd.DataFrame(table).to_csv(index=False, sep=";").replace("€", "EUR").encode("latin-1"))
    return path, file.y


def genes(folder: Path, seed: int) -> Written:
    """Expressions of 1,000 genes in 120 patients, with the patient's code, as a compressed file."""
    file = load_file("files/genes", seed)
    frame = file.frame.copy()
    frame.insert(0, "patient", [f"P{i:04d}" for i in _rng(seed, "genes").permutation(9_000)[: len(frame)]])
    path = folder / "genes.csv.gz"
    frame.to_csv(path, index=False)
    return path, file.y


def shops(folder: Path, seed: int) -> Written:
    """Places in twelve cities by latitude and longitude, with a street."""
    file = load_file("noise/cities/without-noise", seed)
    frame = file.frame.rename(columns={"lon": "longitude", "lat": "latitude"})[["latitude", "longitude"]]
    frame.insert(0, "shop", [f"Shop {i}" for i in range(len(frame))])
    path = folder / "shops.csv"
    frame.to_csv(path, index=False)
    return path, file.y


def web_logs(folder: Path, seed: int) -> Written:
    """Sessions of a web server with address, first page and time in milliseconds."""
    file, rng = load_file("files/web-logs", seed), _rng(seed, "logs")
    frame, n = file.frame.copy(), len(file.y)
    frame.insert(0, "ip", [".".join(map(str, row)) for row in rng.integers(1, 255, (n, 4))])
    frame.insert(1, "timestamp", 1_760_000_000_000 + rng.integers(0, 10**9, n))
    frame.insert(2, "landing_page", [f"/article/{page}" for page in rng.zipf(1.3, n) % 5_000])
    path = folder / "sessions.csv"
    frame.to_csv(path, index=False)
    return path, file.y


def embeddings(folder: Path, seed: int) -> Written:
    """Directions of 256 dimensions in 24 groups, as an array of half precision."""
    rng = _rng(seed, "embeddings")
    y = rng.choice(24, 2_400, p=rng.dirichlet(np.full(24, 6.0)))
    axes = rng.normal(size=(40, 256))
    centres = rng.normal(size=(24, 40))
    X = (centres[y] + rng.normal(0.0, 0.75, (len(y), 40))) @ axes + rng.normal(0.0, 1.5, (len(y), 256))
    path = folder / "embeddings.npy"
    np.save(path, (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float16))
    return path, y


def images(folder: Path, seed: int) -> Written:
    """Drawings of discs, crosses and rings of several sizes and greys, 32 by 32 pixels."""
    rng = _rng(seed, "images")
    y = rng.choice(3, 240)
    path = folder / "drawings"
    path.mkdir(exist_ok=True)
    row, column = np.mgrid[:32, :32]
    for i, shape in enumerate(y):
        u, v = row - 15.5 - rng.normal(0, 0.7), column - 15.5 - rng.normal(0, 0.7)
        radius, size = np.hypot(u, v), rng.uniform(8, 11)
        ink = (radius < size, (np.abs(u) < 3) | (np.abs(v) < 3), np.abs(radius - size) < 2.5)[shape]
        pixels = np.where(ink, rng.uniform(150, 255), 20) + rng.normal(0, 12, (32, 32))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path / f"scan_{i:04d}.png")
    return path, y


def spreadsheet(folder: Path, seed: int) -> Written:
    """A workbook with a title above the table, dates and a formula error."""
    file, rng = load_file("files/customers", seed), _rng(seed, "excel")
    rows = slice(0, 900)
    frame = file.frame.iloc[rows].reset_index(drop=True)
    frame.insert(0, "Customer", _people(rng, len(frame))["name"])
    frame["Margin"] = [f"{v:.1%}" for v in rng.uniform(0, 0.4, len(frame))]
    frame["income"] = frame["income"].astype(object).where(frame["income"].notna(), "#N/A")
    path = folder / "customers.xlsx"
    with pd.ExcelWriter(path) as writer:
        frame.to_excel(writer, sheet_name="Customers 2026", index=False, startrow=3)
        writer.sheets["Customers 2026"]["A1"] = "Customers, exported for the board"
    return path, file.y[rows]


def json_lines(folder: Path, seed: int) -> Written:
    """Payments as JSON lines, with the card as an object and missing keys."""
    file = load_file("files/transactions", seed)
    path = folder / "payments.jsonl"
    lines = []
    for i, record in enumerate(file.frame.to_dict("records")):
        card = {"kind": record.pop("card"), "number": f"**** {i % 9_000 + 1_000}"}
        present = {str(name): value for name, value in record.items() if not pd.isna(value)}
        lines.append(json.dumps({"payment": f"p-{i}", **present, "card": card}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path, file.y


def parquet_folder(folder: Path, seed: int) -> Written:
    """Sessions of a web server in three Parquet files."""
    file = load_file("files/web-logs", seed)
    path = folder / "sessions"
    path.mkdir(exist_ok=True)
    frame = file.frame.assign(session=np.arange(len(file.y)) * 17 + 400_000)
    for part, rows in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[rows].to_parquet(path / f"part-{part}.parquet", index=False)
    return path, file.y


def sparse_counts(folder: Path, seed: int) -> Written:
    """Counts of 600 words in 900 documents of five subjects, as scipy saves them."""
    rng = _rng(seed, "sparse")
    y = rng.choice(5, 900)
    usual = rng.dirichlet(np.full(600, 0.3))
    subjects = np.stack([0.55 * usual + 0.45 * rng.dirichlet(np.full(600, 0.05)) for _ in range(5)])
    counts = np.stack([rng.multinomial(length, subjects[k]) for k, length in zip(y, rng.poisson(80, 900), strict=True)])
    path = folder / "counts.npz"
    sparse.save_npz(path, sparse.csr_matrix(counts))
    return path, y


def database(folder: Path, seed: int) -> Written:
    """Customers in a table of SQLite."""
    file, rng = load_file("files/customers", seed), _rng(seed, "sqlite")
    frame = pd.concat([_people(rng, len(file.y)), file.frame], axis=1)
    frame["signup"] = frame["signup"].astype(str).replace("NaT", None)
    path = folder / "shop.db"
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        frame.to_sql("customers", connection, index=False)
    connection.close()
    return path, file.y


def mixed_text(folder: Path, seed: int) -> Written:
    """Messages to a shop with stars, price and minutes until the answer; texts and numbers tell the same clusters."""
    rng = _rng(seed, "text")
    y = rng.choice(3, 900)
    start, minutes = pd.Timestamp("2026-05-01"), np.sort(rng.integers(0, 40_000, len(y)))
    themes = [np.concatenate([theme, _SMALL]) for theme in (_COMPLAINTS, _PRAISE, _QUESTIONS)]
    frame = pd.DataFrame(
        {
            "ticket": [f"T-{i:05d}" for i in range(len(y))],
            "received": [f"{moment:%Y-%m-%d %H:%M}" for moment in start + pd.to_timedelta(minutes, unit="min")],
            "message": [" ".join(rng.choice(themes[k], rng.integers(5, 14))) for k in y],
            "stars": np.clip(rng.normal(np.array([1.6, 4.6, 3.2])[y], 0.8), 1, 5).round(),
            "price": [f"€{v:,.2f}" for v in rng.lognormal(np.array([4.4, 3.2, 3.8])[y], 0.4)],
            "minutes": rng.lognormal(np.array([4.5, 3.0, 5.5])[y], 0.45).round(),
        }
    )
    path = folder / "messages.csv"
    frame.to_csv(path, index=False)
    return path, y


WRITERS: Final[dict[str, Write]] = {
    "customers": customers,
    "transactions": transactions,
    "survey": survey,
    "German export": german_export,
    "genes": genes,
    "places": shops,
    "web logs": web_logs,
    "embeddings": embeddings,
    "images": images,
    "Excel": spreadsheet,
    "JSON lines": json_lines,
    "Parquet folder": parquet_folder,
    "sparse": sparse_counts,
    "SQLite": database,
    "mixed text": mixed_text,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write all files into a folder, and their true clusters beside them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1_000)
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, write in WRITERS.items():
        path, y = write(given.folder, given.seed)
        truth: npt.NDArray[np.int64] = np.asarray(y)
        np.save(given.folder / f"truth-{path.name}.npy", truth)
        print(f"{name}: {path.name}, {len(y):,} rows, {len(np.unique(y[y >= 0]))} clusters")


if __name__ == "__main__":
    main()
