"""Makes a small shop to try things on: `python examples/shop.py shop.sqlite`.

Customers order products for two years and rate what they get. Each has a habit, so many days between orders. Some
products disappoint: whoever is disappointed gives bad ratings and soon leaves. No key and no link is declared:
finding them is part of the exercise.
"""

from __future__ import annotations

import random
import sqlite3
import sys
from datetime import datetime, timedelta
from pathlib import Path

FIRST_DAY, NUM_DAYS = datetime(2023, 1, 1), 730
CATEGORIES = ("kitchen", "garden", "toys", "books")


def make_shop(num_customers: int = 500, num_products: int = 30) -> dict[str, dict[str, list]]:
    """Returns the tables as columns of values: customers, products, orders."""
    rng = random.Random(7)
    products = {
        "product_id": list(range(num_products)),
        "category": [CATEGORIES[number % len(CATEGORIES)] for number in range(num_products)],
        "price": [round(rng.lognormvariate(3, 0.6), 2) for _ in range(num_products)],
    }
    customers: dict[str, list] = {"customer_id": [], "name": [], "city": [], "joined_at": []}
    orders: list[tuple[str, str, int, int]] = []
    for number in range(num_customers):
        day, days_between = rng.uniform(0, 600), rng.uniform(3, 15)
        leaves, best_rating = NUM_DAYS, 5
        first_name = rng.choice(("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn"))
        row = (f"c{number}", f"{first_name} {number}", f"city {number % 12}", _written(day))
        for column, value in zip(customers.values(), row, strict=True):
            column.append(value)
        while day < leaves:
            product = rng.randrange(num_products)
            if product % 8 == 0 and rng.random() < 0.6:  # a product that disappoints
                leaves, best_rating = min(leaves, day + rng.expovariate(1 / 30)), 3
            orders.append((_written(day), f"c{number}", product, best_rating - rng.randrange(3)))
            day += rng.expovariate(1 / days_between)
    orders.sort()
    times, buyers, bought, ratings = zip(*orders, strict=True)
    return {
        "customers": customers,
        "products": products,
        "orders": {
            "order_id": list(range(len(orders))),
            "customer_id": list(buyers),
            "product_id": list(bought),
            "rating": list(ratings),
            "ordered_at": list(times),
        },
    }


def _written(day: float) -> str:
    return (FIRST_DAY + timedelta(days=day)).isoformat(" ", "seconds")


def write_sqlite(path: Path) -> None:
    """Writes the shop as an SQLite file; one that is there is replaced."""
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    for name, columns in make_shop().items():
        connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        places = ", ".join("?" * len(columns))
        connection.executemany(f"INSERT INTO {name} VALUES ({places})", zip(*columns.values(), strict=True))
    connection.commit()
    connection.close()


if __name__ == "__main__":
    write_sqlite(Path(sys.argv[1]))
