"""What is kept from one call to the next saves: one entity, a second process, and the first run on a machine.

    python benchmarks/kept.py MODEL [SRC] [--at TIME] [--json FILE]

MODEL is a run folder, such as that of `quartet train demo airport-late --protocol rolling --time-limit 1m`. CPU seconds
count the processes that task SQL runs in, and are what to compare where other programs keep the cores busy.

    one entity     `LiveModel.predict` of one entity after the other, all at one time, in one process: milliseconds
    predict        `quartet predict MODEL SRC` in a new process: the first time on a machine (nothing compiled, nothing
                   kept), with compiled loops alone, and again on the same data
    --help         `quartet --help` in a new process
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("model")
    options.add_argument("source", nargs="?", default="demo")
    options.add_argument("--at", default="2013-12-01")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(chosen.model, chosen.source, chosen.at, Path(folder))
    for name, (wall, cpu) in found.items():
        print(f"{name:36s} {wall:9.3f} by the clock {cpu:9.3f} CPU")
    if chosen.json:
        chosen.json.write_text(json.dumps({name: {"wall": w, "cpu": c} for name, (w, c) in found.items()}))


def measured(model: str, source: str, at: str, folder: Path) -> dict[str, tuple[float, float]]:
    from quartet.database import Database
    from quartet.listener import SILENT
    from quartet.machine import user_cache
    from quartet.runs import load

    Database.load(source)  # the demo is made before anything is measured
    compiled = os.environ.get("NUMBA_CACHE_DIR", str(user_cache() / "compiled"))
    predict = ["predict", model, source, "--at", at]
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")  # as an installed package has it
    timed(predict, {"QUARTET_CACHE": "off", "NUMBA_CACHE_DIR": compiled})  # compiles
    kept = {"QUARTET_CACHE": "off", "NUMBA_CACHE_DIR": str(folder / "compiled")}
    found = {"predict, nothing compiled (s)": timed(predict, kept)}
    found["predict, nothing kept (s)"] = timed(predict, {"QUARTET_CACHE": "off", "NUMBA_CACHE_DIR": compiled})
    trained = load(model)
    live = trained.on(trained.record.open(source), listener=SILENT)
    entities = live.predict(at=at).table.column(0).to_pylist()
    took = []
    for entity in (entities * 100)[:200]:
        begin, cpu = time.perf_counter(), time.process_time()
        live.predict([entity], at=at)
        took.append((1e3 * (time.perf_counter() - begin), 1e3 * (time.process_time() - cpu)))
    walls, cpus = (sorted(each) for each in zip(*took, strict=True))
    found["one entity, p50 (ms)"] = statistics.median(walls), statistics.median(cpus)
    found["one entity, p99 (ms)"] = walls[-2], cpus[-2]
    timed(predict, {"NUMBA_CACHE_DIR": compiled})  # keeps
    found["predict, again (s)"] = best_of_three(predict, {"NUMBA_CACHE_DIR": compiled})
    found["--help (s)"] = best_of_three(["--help"], {})
    return found


def best_of_three(words: list[str], environment: dict[str, str]) -> tuple[float, float]:
    wall, cpu = zip(*(timed(words, environment) for _ in range(3)), strict=True)
    return min(wall), min(cpu)


def timed(words: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Returns the seconds and the CPU seconds of the command in a process of its own."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    begin, before = time.perf_counter(), spent()
    command = [sys.executable, "-m", "quartet", *words]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, env={**own, **environment}, check=True, capture_output=True)
    return time.perf_counter() - begin, spent() - before


if __name__ == "__main__":
    main()
