"""A synthetic shop of any size: customers, products and purchases, with Zipf hubs on both sides."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema

START = np.datetime64("2015-01-01", "s").astype(np.int64)
YEARS = 8


def shop(num_links: int, rng_seed: int = 0) -> Database:
    """A database with `num_links` foreign-key values: two for each purchase."""
    rng = np.random.default_rng(rng_seed)
    purchases = num_links // 2
    customers, products = max(purchases // 12, 10), max(purchases // 150, 10)
    second = rng.integers(0, YEARS * 365 * 86_400, purchases)
    customer_keys = rng.permutation(customers * 7)[:customers]  # sparse integers
    tables = {
        "customers": pa.table({"customer": customer_keys, "age": rng.integers(18, 90, customers)}),
        "products": pa.table({"product": np.arange(products), "price": rng.gamma(2.0, 20.0, products)}),
        "purchases": pa.table(
            {
                "purchase": np.arange(purchases),
                "customer": customer_keys[_zipf(rng, customers, purchases, 0.6)],
                "product": _zipf(rng, products, purchases, 1.0),
                "bought": pa.array(START + second).cast(pa.timestamp("s")),
            }
        ),
    }
    links = (ForeignKey(("customer",), "customers"), ForeignKey(("product",), "products"))
    schema = Schema(
        {
            "customers": TableSchema(("customer",), settled=FACTS),
            "products": TableSchema(("product",), settled=FACTS),
            "purchases": TableSchema(("purchase",), links, TimeColumn("bought"), settled=FACTS),
        },
        name="shop",
    )
    return Database.build(tables, schema, location="benchmark")


def _zipf(rng: np.random.Generator, kinds: int, draws: int, exponent: float) -> np.ndarray:
    """Draws among `kinds` with probability proportional to 1 / rank ** exponent."""
    weight = np.arange(1, kinds + 1, dtype=np.float64) ** -exponent
    edges = np.cumsum(weight) / weight.sum()
    return rng.permutation(kinds)[np.searchsorted(edges, rng.random(draws))]
