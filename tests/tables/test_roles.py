"""Columns that cannot form clusters: row numbers, ids, addresses, names, free text."""

import uuid

import numpy as np
import pytest

from coterie.errors import TableError
from coterie.tables.roles import choose_row_names, find_unusable, reject_unusable
from coterie.tables.table import Table, as_table, text_column

N = 200
RNG = np.random.default_rng(0)
WORDS = ("late", "parcel", "gift", "kind", "aunt", "never", "asks", "money", "back", "refund", "broken", "again")
UNUSABLE = {
    "Kundennummer": (RNG.permutation(np.arange(50_000, 50_000 + 7 * N, 7)).astype(float), "identifiers"),
    "row": (np.arange(1, N + 1), "row numbers"),
    "session": (np.arange(N) * 17.0 + 400_000, "row numbers"),
    "Zeile": (np.arange(N, 0, -1.0), "row numbers"),
    "customer_id": (RNG.integers(1000, 1100, N), "identifiers"),  # customers come back
    "phone": (RNG.permutation(N) * 1_003 + 491_701_000_000, "long numbers"),
    "name": (text_column([f"Ada {chr(65 + i % 26)}. Lovelace {i}" for i in range(N)]), "almost every text is another"),
    "nearly unique": (text_column([f"person {i % 190}" for i in range(N)]), "almost every text is another"),
    "mail": (text_column([f"someone.{i // 2}@example.org" for i in range(N)]), "e-mail addresses"),
    "page": (text_column([f"https://example.org/{i // 2}" for i in range(N)]), "web addresses"),
    "token": (text_column([str(uuid.UUID(int=i // 2 + 2**90)) for i in range(N)]), "UUIDs"),
    "hash": (text_column([f"{i // 2:032x}" for i in range(N)]), "hashes"),
    "comment": (
        text_column([None if i % 3 else " ".join(RNG.choice(WORDS, 9)) for i in range(N)]),
        "free text of 9 words",
    ),
    "surname": (text_column([f"name{i % 150}" for i in range(N)]), "none of them frequent"),
}
USABLE = {
    "age": RNG.integers(18, 90, N).astype(float),
    "income": np.sort(RNG.lognormal(10, 1, N)).round(),  # rising, but no row number
    "price_index": RNG.permutation(np.arange(3 * N))[:N],
    "year": RNG.integers(1990, 2024, N),
    "plan": text_column([("basic", "gold")[i % 2] for i in range(N)]),
    "city": text_column(["Bremen"] * 80 + ["Ulm"] * 60 + [f"village {i}" for i in range(60)]),
    "rating": text_column([f"{i % 5} of 5 stars, would buy again" for i in range(N)]),
    "empty": text_column([None] * N),
}


def one_column(name: str, values: np.ndarray) -> Table:
    return Table((name, "size"), (values, RNG.normal(size=len(values))))


@pytest.mark.parametrize("name", UNUSABLE)
def test_columns_that_cannot_form_clusters_are_found(name: str) -> None:
    values, reason = UNUSABLE[name]
    (found,) = find_unusable(one_column(name, values))
    assert found.name == name
    assert reason in found.reason
    assert found.names_rows == (len({*values.tolist()}) == N)


@pytest.mark.parametrize("name", USABLE)
def test_other_columns_are_used(name: str) -> None:
    assert find_unusable(one_column(name, USABLE[name])) == ()


def test_free_text_that_repeats_is_found_by_its_words() -> None:
    texts = [" ".join(RNG.choice(WORDS, 9)) for _ in range(100)]
    (found,) = find_unusable(one_column("review", text_column([texts[i % 100] for i in range(N)])))
    assert found.reason == "free text of 9 words on average"


def test_arrays_images_and_short_tables_are_left_alone() -> None:
    assert find_unusable(as_table(np.arange(40.0).reshape(20, 2))) == ()
    assert find_unusable(as_table(np.zeros((20, 3, 3)))) == ()
    assert find_unusable(Table(("who",), (text_column([str(i) + "x" for i in range(9)]),))) == ()


def test_half_precision_and_huge_numbers_are_no_row_numbers() -> None:
    for values in (np.linspace(-1.0, 1.0, 40, dtype=np.float16), np.linspace(0.0, 1.7e308, 40)):
        assert find_unusable(one_column("width", values)) == ()


def test_if_nothing_else_is_left_numbers_in_order_are_used() -> None:
    numbers = np.arange(30.0)
    assert find_unusable(Table(("width", "height"), (numbers, numbers + 1))) == ()
    (found,) = find_unusable(Table(("id", "width"), (numbers, numbers)))
    assert found.name == "id"


def test_rows_are_named_by_an_id_or_else_by_the_first_distinct_texts() -> None:
    name, mail = UNUSABLE["name"][0], UNUSABLE["mail"][0]
    table = Table(("mail", "name", "customer_id"), (mail, name, np.arange(N) * 3))
    assert choose_row_names(find_unusable(table)) == "customer_id"
    assert choose_row_names(find_unusable(table.select([0, 1]))) == "name"
    assert choose_row_names(find_unusable(table.select([0]))) is None


def test_all_unusable_columns_are_rejected_in_one_message() -> None:
    table = Table(("name", "mail", "size"), (UNUSABLE["name"][0], UNUSABLE["mail"][0], RNG.normal(size=N)))
    with pytest.raises(TableError, match=r"2 of the 3 columns .*'name': .*'mail': .*--drop 'name,mail'"):
        reject_unusable(table)
    reject_unusable(table.select([2]))
