"""Whether any of many random predictive queries gives other labels than its definition, or reads the future.

    python -m benchmarks.queries [--count 5000] [--rng-seed 0] [--futures]

Each query is drawn over a random database, written down, compiled to SQL and run; an oracle in plain Python finds the
same labels row by row (`tests/tasks/query/oracle.py`). `--futures` compares with databases whose later rows are deleted
or scrambled instead. A difference is printed, counted, and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.strategies import Raw, random_db
from tests.tasks.query.compare import against_other_futures, against_the_definition


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--rng-seed", type=int, default=0)
    parser.add_argument("--futures", action="store_true")
    options = parser.parse_args()
    counts, different, begin = Counter[str](), 0, time.perf_counter()

    @seed(options.rng_seed)
    @settings(
        max_examples=options.count, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(random_db(), st.integers(0, 2**32))
    def compare(raw: Raw, number: int) -> None:
        nonlocal different
        try:
            if options.futures:
                against_other_futures(raw, number)
                counts["queries"] += 1
            else:
                counts.update(against_the_definition(raw, number))
        except AssertionError as error:
            different += 1
            print(f"difference: {error}\n", flush=True)

    compare()
    for what, count in counts.items():
        print(f"{count:>10,}  {what}")
    print(f"{different:>10,}  differences in {time.perf_counter() - begin:.0f} s")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
