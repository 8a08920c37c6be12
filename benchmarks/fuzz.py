"""Whether any of many random inputs makes the command fail otherwise than by an error of ours, or hang.

    python -m benchmarks.fuzz [--count 5000] [--rng-seed 0] [--kind yaml]

Each input is a file or an option as a user may get it wrong: the YAML of a task, its SQL, a label file, a schema, the
tables themselves, a run's JSON, `--set`. Exit code 70 is a traceback, 30 seconds are a hang; both are printed with the
input, counted, and make the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from quartet.config import recipe_fields
from tests.tasks.small import CHURN
from tests.trained import Done, run, write_shop

LONGEST = 30  # seconds

Input = tuple[list[str], str]  # the words of a command, and what was written for it
Write = Callable[[Path, Any], Input]

# --- what may stand in a place ------------------------------------------------------------------------

TEXTS = st.one_of(
    st.sampled_from(["", " ", "abc", "0", "-1", "1e9", "nan", "inf", "None", "true", "2023-09-01", "2023-13-45",
                     "1 ns", "10 days", "-3 days", "0 days", "99999999999 days", "P1Y", "customers", "orders",
                     "customer", "bought", "timestamp", "churned", "../../x", "/etc/passwd", "a\0b", "\ud800", "é",
                     "x" * 300, "[[", "{{", "*", "&a"]),
    st.text(max_size=8),
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-3, 3), st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**30]), st.floats(), st.booleans()
)
SCALARS = st.one_of(st.none(), TEXTS, NUMBERS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=2)),
    max_leaves=4,
)
WORDS = [
    *(
        "name",
        "kind",
        "task_type",
        "description",
        "manifest_version",
        "entity_table",
        "entity_col",
        "target_col",
    ),
    *(
        "time_col",
        "timedelta",
        "known_after",
        "num_eval_timestamps",
        "remove_columns",
        "sql",
        "labels",
        "eval_k",
    ),
    *(
        "val_timestamp",
        "test_timestamp",
        "evaluator",
        "src_entity_table",
        "dst_entity_table",
        "timezone",
        "extra",
    ),
]
KINDS = st.sampled_from(["forecast", "autocomplete", "external", "x"])
TYPES = st.sampled_from(
    ["binary_classification", "regression", "multiclass_classification", "recommendation", "y"]
)
CELLS = st.one_of(
    st.sampled_from(["", "1", "0", "-7", "1.5", "nan", "inf", "1e400", "C00", "C01", "C02", "2023-05-01", "2023-09-20",
                     "2023-09-20T10:00:00+02:00", "2023-02-30", "1700000000", "007", "0x1F", "true", "NULL", '"',
                     '"a,b"', "[1]"]),
    st.text(max_size=4),
)  # fmt: skip
LABELS = [
    *(
        "1",
        "0",
        "NULL",
        "'a'",
        "''",
        "[1, 2]",
        "{'a': 1}",
        "1.5",
        "'inf'::DOUBLE",
        "'nan'::DOUBLE",
        "-1",
        "2",
        "true",
    ),
    *(
        "o.amount",
        "o.customer",
        "o.bought",
        "DATE '2023-01-01'",
        "INTERVAL 1 day",
        "uuid()",
        "1::HUGEINT",
        "1::UTINYINT",
    ),
    *(
        "1::DECIMAL(38, 10)",
        "'a'::BLOB",
        "TIME '10:00'",
        "map {'a': 1}",
        "COUNT(*)",
        "SUM(1)",
        "'a'::ENUM ('a', 'b')",
    ),
    *(
        "bitstring('01')",
        "NULL::INT[]",
        "now()",
        "row(1, 2)",
        "''::JSON",
        "2::UBIGINT * 9000000000000000000",
        "random()",
    ),
]
TIMES = [
    *("t.timestamp", "o.bought", "t.timestamp::DATE", "t.timestamp::TIMESTAMPTZ", "'x'", "1", "NULL"),
    "t.timestamp::VARCHAR",
]
ENTITIES = [
    "o.customer",
    "'C00'",
    "1",
    "NULL",
    "[o.customer]",
    "o.amount",
    "'nobody'",
    "''",
    "t.timestamp",
    "1.5",
    "true",
]
FROM = [
    "timestamps t JOIN orders o ON o.bought > t.timestamp - INTERVAL '30 days' "
    "AND o.bought <= t.timestamp + INTERVAL '{timedelta}'",
    *(
        "timestamps t, orders o",
        "orders o",
        "timestamps t",
        "nowhere",
        "timestamps t JOIN customers o ON true",
    ),
]
ENDS = [
    *("", "LIMIT 0", "LIMIT 3", "GROUP BY ALL", "WHERE false", "ORDER BY 1", ";", "; SELECT 1", "--"),
    "UNION ALL SELECT 1, 2, 3",
]


@st.composite
def sqls(draw: st.DrawFn) -> str:
    """A right query in which about one part in four is another."""

    def part(right: str, others: list[str]) -> str:
        return draw(st.sampled_from(others)) if draw(st.integers(0, 3)) == 0 else right

    values = [part(right, others) for right, others in zip(RIGHT, (TIMES, ENTITIES, LABELS), strict=True)]
    names = draw(st.permutations(CHURN_COLUMNS)) if draw(st.integers(0, 9)) == 0 else CHURN_COLUMNS
    columns = [f"{value} AS {name}" for value, name in zip(values, names, strict=True)]
    columns += [part("2 AS extra", ["1 AS churned", "*", "t.timestamp"])]
    text = f"SELECT {', '.join(columns)} FROM {part(FROM[0], FROM)} {part(GROUPS, ENDS)}"
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(TEXTS) + text[place:]
    return text


GROUPS = "GROUP BY t.timestamp, o.customer HAVING MIN(o.bought) <= t.timestamp"
CHURN_COLUMNS = ["timestamp", "customer", "churned"]
RIGHT = ["t.timestamp", "o.customer", "(COUNT(*) FILTER (WHERE o.bought > t.timestamp) = 0)::INT"]


@st.composite
def grids(draw: st.DrawFn) -> str:
    header = draw(
        st.lists(
            st.sampled_from(["timestamp", "customer", "churned", "id", "", "ts", "é"]), min_size=1, max_size=4
        )
    )
    rows = draw(st.lists(st.lists(CELLS, min_size=len(header), max_size=len(header)), max_size=6))
    if draw(st.booleans()):
        header, rows = CHURN_COLUMNS, []
        for month, key in product(range(1, 10), ("C00", "C01", "C02")):
            wrong = draw(st.integers(0, 99)) == 0
            rows.append([f"2023-0{month}-01", key, draw(CELLS) if wrong else str((month + int(key[1:])) % 2)])
    lines = [",".join(row) for row in [header, *rows]]
    return draw(st.sampled_from(["\n", "\r\n", "\n\n"])).join(lines) + draw(
        st.sampled_from(["", "\n", '"', "\0"])
    )


# --- one command for each kind of input ---------------------------------------------------------------


def written(path: Path, text: str) -> str:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return text


def from_yaml(folder: Path, drawn: tuple[dict[str, Any], str]) -> Input:
    task, noise = drawn
    base = {"kind": "forecast", **CHURN}
    merged = {word: value for word, value in (base | task).items() if value != "absent"}
    text = written(folder / "t.yaml", yaml.safe_dump(merged, allow_unicode=True) + noise)
    return ["task", str(folder / "shop"), str(folder / "t.yaml")], text


def from_sql(folder: Path, drawn: tuple[str, str]) -> Input:
    sql, task_type = drawn
    task = {"kind": "forecast", **CHURN, "sql": sql, "task_type": task_type, "dst_entity_table": "customers",
            "src_entity_table": "customers", "src_entity_col": "customer"}  # fmt: skip
    text = written(folder / "t.yaml", yaml.safe_dump(task, allow_unicode=True))
    return ["task", str(folder / "shop"), str(folder / "t.yaml")], text


def from_labels(folder: Path, drawn: tuple[str, str, str]) -> Input:
    grid, task_type, ending = drawn
    task = {**CHURN, "kind": "external", "task_type": task_type, "labels": f"labels.{ending}"}
    written(folder / "t.yaml", yaml.safe_dump(task))
    return ["task", str(folder / "shop"), str(folder / "t.yaml")], written(folder / f"labels.{ending}", grid)


def from_tables(folder: Path, grids: list[str]) -> Input:
    place = folder / "tables"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for number, grid in enumerate(grids):
        written(place / f"t{number}.csv", grid)
    return ["inspect", str(place)], "\n---\n".join(grids)


def from_schema(folder: Path, drawn: tuple[dict[str, Any], dict[str, Any], str]) -> Input:
    orders, more, noise = drawn
    content = {"tables": {"orders": orders, "customers": {"pkey": "customer"}}} | more
    text = written(folder / "s.yaml", yaml.safe_dump(content, allow_unicode=True) + noise)
    return ["inspect", str(folder / "shop"), "--schema", str(folder / "s.yaml")], text


def from_settings(_: Path, texts: list[str]) -> Input:
    words = [
        word for text in texts for word in ("--set", text.replace("\0", "").encode(errors="replace").decode())
    ]
    return ["recipe", *words], " ".join(texts)


def from_run(folder: Path, drawn: tuple[str, str, Any, bool]) -> Input:
    """A run whose files were changed by another program, or cut off."""
    file, key, value, is_cut = drawn
    shutil.rmtree(folder / "runs" / "changed", ignore_errors=True)
    shutil.copytree(folder / "runs" / "whole", folder / "runs" / "changed")
    path = folder / "runs" / "changed" / file
    content = path.read_text(encoding="utf-8")
    if is_cut:
        content = content[: len(content) * len(key) // 20]
    elif isinstance(known := json.loads(content), dict):
        content = json.dumps(known | {key if key != "any" else sorted(known)[0]: value})
    written(path, content)
    return ["evaluate", str(folder / "runs" / "changed")], f"{file}: {key} = {value!r}, cut {is_cut}"


TABLE_WORDS = ["pkey", "fkeys", "time_col", "time_unit", "time_format", "timezone", "available_at", "time_from",
               "on_missing_time", "kinds", "known_at", "exclude", "x"]  # fmt: skip
NOISE = st.sampled_from(
    [""] * 12
    + ["\nname: again\n", "\t", "\n- 1", "\n!!python/object:os.system {}", "\n{", "\0", "\n? [1]\n: 2"]
)
SETTINGS = st.builds(
    lambda name, sign, value: f"{name}{sign}{value}",
    st.sampled_from([*(each.name for _, each, _ in recipe_fields()), "epocs", ""]),
    st.sampled_from(["="] * 9 + [""]),
    SCALARS,
)
RUN_FILES = ["recipe.json", "task.json", "environment.json", "model/checksums.json", "model/model.json"]
RUN_KEYS = ["any", "name", "type", "classes", "width", "epochs", "source", "architecture", "spec", "files"]
TASKS = st.dictionaries(
    st.sampled_from(WORDS), VALUES | st.just("absent") | KINDS | TYPES, min_size=1, max_size=3
)
SCHEMAS = st.dictionaries(st.sampled_from(TABLE_WORDS), VALUES, max_size=3)
ENDINGS = st.sampled_from(["csv"] * 4 + ["parquet", "csv.gz", "txt"])
INPUTS: dict[str, tuple[Write, st.SearchStrategy[Any]]] = {
    "run": (
        from_run,
        st.tuples(st.sampled_from(RUN_FILES), st.sampled_from(RUN_KEYS), VALUES, st.booleans()),
    ),
    "yaml": (from_yaml, st.tuples(TASKS, NOISE)),
    "sql": (from_sql, st.tuples(sqls(), TYPES)),
    "labels": (from_labels, st.tuples(grids(), TYPES, ENDINGS)),
    "tables": (from_tables, st.lists(grids(), min_size=1, max_size=3)),
    "schema": (from_schema, st.tuples(SCHEMAS, st.dictionaries(TEXTS, VALUES, max_size=1), NOISE)),
    "settings": (from_settings, st.lists(SETTINGS, min_size=1, max_size=2)),
}


def prepared(folder: Path, with_run: bool = True) -> Path:
    """Returns the folder with a shop and a run of a small model in it."""
    write_shop(folder / "shop")
    if not with_run:
        return folder
    task, runs = folder / "churn.yaml", folder / "made"
    done = run("train", folder / "shop", task, "--model", "lightgbm", "--runs", runs)
    assert done.returncode == 0, done.stderr
    (runs / "latest").resolve().rename(folder / "whole")
    (folder / "runs").mkdir()
    (folder / "whole").rename(folder / "runs" / "whole")
    return folder


def tried(folder: Path, kind: str, drawn: Any) -> tuple[Done, str]:
    """Returns how the command ended on an input, and the input. One that hangs is ended with the code 124."""
    words, text = INPUTS[kind][0](folder, drawn)

    def stop(*_: object) -> None:
        raise SystemExit(124)

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST)
    try:
        return run(*words), text
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fuzzed(folder: Path, kind: str, num_inputs: int, rng_seed: int) -> tuple[Counter[int], list[str]]:
    """Returns how often the command ended with each code, and what made it fail otherwise than by an error of ours."""
    codes: Counter[int] = Counter()
    stories: list[str] = []

    @seed(rng_seed)
    @settings(
        max_examples=num_inputs,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(INPUTS[kind][1])
    def attempt(drawn: Any) -> None:
        if codes.total() == num_inputs:
            return
        done, text = tried(folder, kind, drawn)
        codes[done.returncode] += 1
        if done.returncode not in (0, 2, 3, 4, 5):
            stories.append(f"{kind}, exit code {done.returncode}: {done.stderr.strip()}\n{text[:1500]}\n")

    attempt()
    return codes, stories


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--rng-seed", type=int, default=0)
    parser.add_argument("--kind", choices=list(INPUTS))
    options = parser.parse_args()
    kinds = [options.kind] if options.kind else list(INPUTS)
    grid = Table("input", "tried", "accepted", "refused", "tracebacks", "hangs", "seconds")
    total: Counter[int] = Counter()
    with tempfile.TemporaryDirectory() as place:
        folder = prepared(Path(place), "run" in kinds)
        for number, kind in enumerate(kinds):  # each gets its share of what is left; a run takes a second
            parts = len(kinds) - number
            share = (options.count - total.total()) // (10 * parts if kind == "run" and parts > 1 else parts)
            begin = time.perf_counter()
            codes, stories = fuzzed(folder, kind, share, options.rng_seed)
            print("\n".join(stories), end="", flush=True)
            print(kind, dict(codes), file=sys.stderr)
            total += codes
            grid.add_row(kind, *_row(codes), f"{time.perf_counter() - begin:.0f}")
    grid.add_row("all", *_row(total), "")
    Console().print(grid)
    return int(sum(count for code, count in total.items() if code not in (0, 2, 3, 4, 5)) > 0)


def _row(codes: Counter[int]) -> list[str]:
    refused = sum(codes[code] for code in (2, 3, 4, 5))
    failed = codes.total() - codes[0] - refused - codes[124]
    return [f"{number:,}" for number in (codes.total(), codes[0], refused, failed, codes[124])]


if __name__ == "__main__":
    sys.exit(main())
