"""From data frames to predictions: will a customer stop ordering?

    python examples/own_database.py

Takes about half a minute. Replace `make_shop()` by your own data frames, one for each table.
"""

from __future__ import annotations

import pandas as pd
from shop import make_shop

import quartet as q

# Your own tables, by name. Keys, links and times that nobody declares are inferred; `db.findings` says what is odd.
frames = {name: pd.DataFrame(columns) for name, columns in make_shop().items()}
frames["orders"]["ordered_at"] = pd.to_datetime(frames["orders"]["ordered_at"])
db = q.open(frames, schema={"tables": {"customers": {"time_col": "joined_at"}}})  # settles what was a guess
print(db)

# A task says for whom, when and what: here by SQL over the tables and `timestamps`, the times of prediction.
task = db.task(
    name="churn",
    task_type="binary_classification",
    entity_table="customers",
    entity_col="customer_id",
    time_col="timestamp",
    target_col="churned",
    timedelta="30 days",
    num_eval_timestamps=2,
    sql="""
        SELECT t.timestamp, o.customer_id,
               CAST(COUNT(*) FILTER (WHERE o.ordered_at > t.timestamp) = 0 AS BIGINT) AS churned
        FROM timestamps t
        JOIN orders o ON o.ordered_at > t.timestamp - INTERVAL '60 days'
                     AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}'
        GROUP BY t.timestamp, o.customer_id
        HAVING MIN(o.ordered_at) <= t.timestamp
    """,
)
print(task.check())  # leaks and thin labels

# Trees first: they take a second and set the bar. Then the default, trees and networks together, here with little time.
trees = q.fit(task, "lightgbm")
best = q.fit(task, time_limit=15)
for model in (trees, best):
    print(model.evaluate())

# Who is about to leave? The highest scores among those who ordered lately.
orders = frames["orders"]
now = orders["ordered_at"].max()
lately = orders.loc[orders["ordered_at"] > now - pd.Timedelta("60 days"), "customer_id"].unique()
scores = best.on(db).predict(lately, at=now).to_pandas()
print(scores.sort_values("score", ascending=False).head())
