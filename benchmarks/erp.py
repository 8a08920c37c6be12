"""An ERP database of our own, since the real ones are gated, and how well its columns are filled in.

    python -m benchmarks.erp make FOLDER [--documents 4000] [--rng-seed 0]
    python -m benchmarks.erp [--tasks payment-terms plant ...] [--models lightgbm auto] [--time-limit 1m]
                             [--seeds 0 1 2] [--out runs/erp] [--table]

`benchmarks/repeated.py` tells what becomes of the runs.

Customers order by sales documents whose items are shipped from plants, at shipping points. As in the real ones, columns
depend on each other through the schema, and on what the tables do not tell:

    customers <- documents <- items -> products
                              items -> plants

    payment_terms    by the customer's segment and country, or agreed on with the customer; terms are renegotiated, and
                     new ones come up
    sales_office     by the customer's region; an office that has grown is split in two
    incoterms        by the office and the customer's country; the note on the document may say it
    plant            by the product's division and the customer's region, among the plants that are open by then
    shipping_point   by the plant, the incoterms and the weight: a long tail

A share of all cells follows no rule. Everything is drawn from `rng_seed`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.repeated import options, repeat
from quartet.database import Database
from quartet.tasks import Task

DAY = 86_400
START = int(np.datetime64("2019-01-01", "s").astype(np.int64))
DAYS = 4 * 365
COUNTRIES = ("DE", "FR", "IT", "ES", "PL", "NL", "SE", "US", "CA", "MX", "JP", "IN")
REGION = {name: place // 3 for place, name in enumerate(COUNTRIES)}
INCOTERMS = ("EXW", "FCA", "CPT", "CIP", "DAP", "DPU", "DDP", "FOB", "CFR", "CIF")
SAYINGS = {
    "EXW": "will be collected at your gate", "FCA": "hand over to our forwarder", "CPT": "carriage paid",
    "CIP": "carriage and insurance paid", "DAP": "deliver to our site", "DPU": "unload at our site",
    "DDP": "deliver with duties paid", "FOB": "on board please", "CFR": "freight to the port",
    "CIF": "freight and insurance to the port",
}  # fmt: skip
DIVISIONS = ("pumps", "valves", "seals", "motors", "controls", "tools")
WORDS = ("steel", "brass", "compact", "heavy", "sealed", "silent", "coated", "spare", "kit", "series")
TARGETS = {
    "payment-terms": ("documents", "payment_terms", ()),
    "sales-office": ("documents", "sales_office", ()),
    "incoterms": ("documents", "incoterms", ()),
    "plant": ("items", "plant", (("items", "shipping_point"),)),
    "shipping-point": ("items", "shipping_point", (("items", "plant"),)),
}
LISTS = "incoterms-lists"
QUERY = "PREDICT LIST_DISTINCT(documents.incoterms, 0, 60, days) CLASSIFY FOR EACH customers.customer"
SCHEMA = {
    "name": "erp",
    "tables": {
        "customers": {"pkey": "customer", "time_col": "since", "fkeys": {}},
        "products": {"pkey": "product", "time_col": "introduced", "fkeys": {}},
        "plants": {"pkey": "plant", "time_col": "opened", "fkeys": {}},
        "documents": {"pkey": "document", "time_col": "created", "fkeys": {"customer": "customers"}},
        "items": {
            "pkey": "item", "time_col": "created",
            "fkeys": {"document": "documents", "product": "products", "plant": "plants"},
        },
    },
}  # fmt: skip


def erp(num_documents: int = 4000, rng_seed: int = 0) -> dict[str, pa.Table]:
    """The tables of the ERP database."""
    rng = np.random.default_rng(rng_seed)
    num_customers, num_products = max(30, num_documents // 14), max(20, num_documents // 25)
    since = np.sort(rng.integers(-400, int(0.8 * DAYS), num_customers))
    country = rng.choice(COUNTRIES, num_customers, p=_zipf(len(COUNTRIES), 0.8))
    segment = rng.choice(
        ["retail", "industry", "public", "reseller"], num_customers, p=[0.35, 0.4, 0.1, 0.15]
    )
    introduced = np.sort(rng.integers(-400, int(0.9 * DAYS), num_products))
    division = rng.choice(len(DIVISIONS), num_products, p=_zipf(len(DIVISIONS), 0.7))
    weight = np.round(rng.gamma(1.5, 8.0, num_products), 1)
    described = [
        " ".join([*rng.choice(WORDS, 2, replace=False), DIVISIONS[kind][:-1], f"{rng.integers(10, 99)}"])
        for kind in division
    ]
    plants = [f"P{number:02d}" for number in range(14)]
    opened = np.array([-500] * 7 + sorted(rng.integers(100, DAYS - 60, 7).tolist()))
    plant_region = np.array([number % 4 for number in range(14)])
    makes = rng.random((14, len(DIVISIONS))) * 3  # how well a plant fits a division

    day = np.sort(rng.integers(0, DAYS, num_documents))
    loyal = rng.permutation(num_customers)[
        rng.choice(num_customers, num_documents, p=_zipf(num_customers, 0.9))
    ]
    new = np.searchsorted(since, day, side="right")  # customers that are known by then
    customer = np.where(loyal < new, loyal, rng.integers(0, np.maximum(new, 1)))
    region = np.array([REGION[name] for name in country])
    terms, offices, incoterms, notes = [], [], [], []
    agreed: dict[int, str] = {}
    split_at = {0: int(DAYS * 0.55), 1: int(DAYS * 0.78)}  # of the two largest offices
    for today, who in zip(day.tolist(), customer.tolist(), strict=True):
        era = sum(today >= edge for edge in (DAYS * 0.4, DAYS * 0.7, DAYS * 0.86))
        usual = f"{segment[who][:3].upper()}{30 + 15 * ((region[who] + era) % 4)}"
        if who not in agreed or rng.random() < 0.02 + 0.05 * (era > 1):
            agreed[who] = usual if rng.random() < 0.6 else f"Z{rng.integers(0, 12 + 8 * era):02d}"
        terms.append(agreed[who] if rng.random() < 0.92 else f"Z{rng.integers(0, 12 + 8 * era):02d}")
        office = f"O{region[who]}{who % 3}"
        if today > split_at.get(region[who], DAYS) and who % 2:
            office += "b"
        offices.append(office if rng.random() < 0.95 else f"O{rng.integers(0, 4)}{rng.integers(0, 3)}")
        place = (
            2 * region[who] + int(office[2]) + (segment[who] == "retail") + 3 * (country[who] in "USJP")
        ) % 10
        term = INCOTERMS[place] if rng.random() < 0.75 else str(rng.choice(INCOTERMS, p=_zipf(10, 1.0)))
        incoterms.append(term)
        notes.append(
            f"order by phone, {SAYINGS[term]}"
            if rng.random() < 0.4
            else str(rng.choice(["", "urgent", "as usual"]))
        )
    count = rng.integers(1, 5, num_documents)
    document = np.repeat(np.arange(num_documents), count)
    when = day[document]
    known = np.searchsorted(introduced, when, side="right")
    product = (rng.random(len(document)) ** 2 * np.maximum(known, 1)).astype(np.int64)
    kept, points = [], []
    for at, kind, today in zip(document.tolist(), product.tolist(), when.tolist(), strict=True):
        who, is_open = customer[at], opened <= today
        fit_of = makes[:, division[kind]] + 2.0 * (plant_region == region[who])
        best = np.argsort(np.where(is_open, -fit_of, np.inf))
        own = int(best[0] if rng.random() < 0.88 else best[rng.integers(0, is_open.sum())])
        kept.append(plants[own])
        gate = (INCOTERMS.index(incoterms[at]) // 3 + 2 * int(weight[kind] > 20)) % 6
        gate = gate if rng.random() < 0.85 else int(rng.integers(0, 6))
        points.append(f"{plants[own]}-{gate}{'x' if today > DAYS * 0.8 and gate == 1 and own % 2 else ''}")
    hour = rng.integers(6 * 3600, 18 * 3600, num_documents)
    created = _times(day, hour)
    return {
        "customers": pa.table({
            "customer": np.arange(num_customers), "since": _times(since), "country": country, "segment": segment,
        }),
        "products": pa.table({
            "product": np.arange(num_products), "introduced": _times(introduced), "weight": weight,
            "description": described,
        }),
        "plants": pa.table({"plant": plants, "opened": _times(opened), "region": plant_region}),
        "documents": pa.table({
            "document": np.arange(num_documents), "created": created, "customer": customer,
            "sales_office": offices, "payment_terms": terms, "incoterms": incoterms, "note": notes,
        }),
        "items": pa.table({
            "item": np.arange(len(document)), "created": created.take(pa.array(document)), "document": document,
            "product": product, "quantity": rng.geometric(0.1, len(document)), "plant": kept, "shipping_point": points,
        }),
    }  # fmt: skip


def write_erp(folder: Path, num_documents: int = 4000, rng_seed: int = 0) -> Path:
    """Writes the database as a folder of Parquet files with a schema, and a task file for each target."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in erp(num_documents, rng_seed).items():
        pq.write_table(table, folder / f"{name}.parquet")
    (folder / "quartet.yaml").write_text(yaml.safe_dump(SCHEMA))
    for name, (table, column, hidden) in TARGETS.items():
        words = {
            "name": name, "kind": "autocomplete", "task_type": "multiclass_classification", "entity_table": table,
            "target_col": column, "known_after": "1 hour", "remove_columns": [list(pair) for pair in hidden],
            "val_timestamp": "2022-01-01", "test_timestamp": "2022-07-01",
        }  # fmt: skip
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(words))
    cuts = {"val_timestamp": "2022-01-04", "test_timestamp": "2022-07-03"}  # as they are proposed
    (folder / f"{LISTS}.yaml").write_text(yaml.safe_dump({"name": LISTS, "query": QUERY} | cuts))
    return folder


def _zipf(kinds: int, exponent: float) -> np.ndarray:
    weight = np.arange(1, kinds + 1, dtype=np.float64) ** -exponent
    return np.asarray(weight / weight.sum())


def _times(day: np.ndarray, second: np.ndarray | int = 0) -> pa.Array:
    return pa.array(START + day * DAY + second).cast(pa.timestamp("s"))


def main() -> None:
    parser = options(
        __doc__, Path("runs/erp"), ["payment-terms", "incoterms", "plant", "shipping-point", LISTS]
    )
    parser.add_argument("make", nargs="*", help="`make FOLDER` writes the database and its tasks")
    parser.add_argument("--documents", type=int, default=4000)
    parser.add_argument("--rng-seed", type=int, default=0)
    asked = parser.parse_args()
    if asked.make:
        print(write_erp(Path(asked.make[-1]), asked.documents, asked.rng_seed))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = write_erp(Path(place) / "erp", asked.documents, asked.rng_seed)
        for name in asked.tasks:

            def make(name: str = name) -> Task:
                return Task.load(Database.load(str(folder)), str(folder / f"{name}.yaml"))

            repeat(name, make, asked, past_labels=True)


if __name__ == "__main__":
    main()
