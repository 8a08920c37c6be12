"""A network and trees together on the demo: will an airport have a bad day tomorrow?

    python examples/demo_ensemble.py

Takes about three minutes on two cores. Models that err in different places err less together: the score of an ensemble
is the mean of its members' scores. The model `auto` does this by itself, with weights that validation chooses.
"""

from __future__ import annotations

import quartet as q


def main(**settings: int) -> None:
    """Trains both models and asks them together; `settings` are fields of the network's recipe."""
    db = q.open("demo")  # New York's flights of 2013, made at first use
    task = db.task("airport-late")

    # Rolling: the database grows from day to day, and each prediction looks from its own day.
    trees = q.fit(task, "lightgbm", protocol="rolling")
    network = q.fit(task, "quartet", protocol="rolling", **settings)

    both = q.Ensemble(network, trees)
    figures = both.evaluate(
        split="val", rules=False
    ).to_pandas()  # choose on validation; test comes once, at the end
    print(figures[["model", "roc_auc", "roc_auc_low", "roc_auc_high"]])
    print(both.on(db).predict(at="2013-12-01"))


if __name__ == "__main__":
    main(epochs=4)
