"""What a sentence model brings to a network that reads titles, beside the default, hashed words.

    python -m benchmarks.texts [--data FOLDER] [--text-models hash sentence] [--until 2013-07-01] [--seeds 0 1 2]
                               [--epochs 4] [--split test] [--out runs/texts] [--table]

rel-travel as it was on a day: which questions will be up-voted again in the next 91 days? The last two windows before
that day are validation and test; those of the whole data stay closed. Quartet without a tower, which reads rows alone.
`benchmarks/repeated.py` tells what becomes of the runs.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from benchmarks.repeated import options, repeat
from quartet.database import Database
from quartet.tasks import Task
from quartet.times import DAY, parse_instant, show_instant

TASK = "tasks/post-upvote/manifest.yaml"
WINDOW = 91 * DAY


def main() -> None:
    parser = options(__doc__, Path("runs/texts"))
    parser.add_argument("--text-models", nargs="+", default=["hash", "sentence"])
    parser.add_argument("--until", default="2013-07-01")
    parser.add_argument("--epochs", type=int, default=4)
    parser.set_defaults(models=["quartet"], time_limit=None)
    asked = parser.parse_args()
    for text_model in asked.text_models:
        name = f"post-upvote until {asked.until}, {asked.epochs} epochs, text_model={text_model}"
        repeat(
            name, lambda: upvoted(asked.data / "rel-travel", asked.until), asked, text_model=text_model, tower=0,
            epochs=asked.epochs, seeds_per_epoch=4000,
        )  # fmt: skip


def upvoted(folder: Path, until: str) -> Task:
    end = parse_instant(until, "--until")
    told = yaml.safe_load((folder / TASK).read_text(encoding="utf-8"))
    test = end - WINDOW - DAY  # whose window ends before the last row
    cuts = {"val_timestamp": show_instant(test - WINDOW), "test_timestamp": show_instant(test)}
    return Task.load(Database.load(folder).upto(end), told | cuts)


if __name__ == "__main__":
    main()
