"""Scores of many entities: in shards of a fixed size, each a Parquet file, by whoever is asked to work.

A file is there when it is whole. It says of which model, data, entities and time it is: one that an earlier job has
left is taken if it says the same, and made again if not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from quartet.errors import ResourceError, UsageError
from quartet.evaluation import Sure
from quartet.findings import note
from quartet.listener import SILENT, Listener
from quartet.machine import Place, map_shards, new_file, slices
from quartet.runs.drift import drift_finding, spread_places
from quartet.runs.sure import check_shares, sures_of
from quartet.times import STATIC

if TYPE_CHECKING:
    from quartet.runs.live import LiveModel, Times

SHARD = 2**14  # entities: as many as a view samples together, so that batches and their bits are the same
_DIGEST = b"quartet-shard"
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Shards:
    """Scores in a folder: the files in order, how many rows they have, and what they tell in words."""

    paths: tuple[Path, ...]
    num_rows: int
    num_new: int  # rows that were computed now, not by an earlier job
    headline: str
    quality: str

    def to_arrow(self) -> pa.Table:
        """Returns all rows as one table."""
        return pa.concat_tables([pq.read_table(path).replace_schema_metadata() for path in self.paths])


def predict_to(
    live: LiveModel,
    folder: Path,
    entities: Sequence[Any] | None,
    at: Times | None,
    listener: Listener,
    everyone: bool,
    coverage: float | None,
    on: str | None,
) -> Shards:
    """Writes the scores of entities at a time; see `LiveModel.predict_to`."""
    Place.parse(on)
    nominal, record = check_shares(coverage, 0.0), live.members[0].task
    if record.spec.type == "recommendation":
        raise UsageError(
            "C02", f'"{record.name}" recommends: its lists are not written in shards', "name a file"
        )
    sures_of(live.members, coverage is not None)
    asked = live.asked(entities, at, everyone=everyone)
    rows, times = asked.rows, asked.times
    if len(np.unique(times)) > 1:
        raise UsageError("C02", "shards are scored at one time, and several were given", "ask time by time")
    findings = list(asked.findings)
    some = spread_places(
        len(rows)
    )  # scored here: they tell of drift, and all that workers need is then built
    answers = live.all_answers(rows[some], times[some], SILENT)
    if asked.is_population:
        drifted = live.drifted(rows[some], times[some], [logits for logits, _ in answers])
        findings += drift_finding(record.name, record.entity_table, drifted)
    sures = live.known_sures(int(times[0]) if len(times) else STATIC, SILENT)
    if not sures and not record.spec.facts.holds_lists:
        text = "the model keeps nothing that tells how sure it is: it is of an earlier version"
        findings.append(note("C10", record.name, text, fix="train again for intervals and sets"))
    listener.noticed(findings)
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    told = [live.name, nominal, [member.key for member in live.members]]
    told += [[view.database.fingerprint for view in live.views], [_sure_digest(sure) for sure in sures]]
    job = hashlib.sha256(json.dumps(told).encode())
    for logits, _ in answers:  # another network has other bits
        job.update(logits.tobytes())
    paths, missing, sizes = [], [], []
    for number, part in enumerate(slices(len(rows), SHARD)):
        digest = hashlib.sha256(job.digest() + rows[part].tobytes() + times[part].tobytes()).hexdigest()
        paths.append(folder / f"part-{number:06}.parquet")
        if _digest_of(paths[-1]) == digest:
            listener.progress("scores", part.stop - part.start, len(rows))
        else:
            missing.append((str(paths[-1]), rows[part], times[part], digest))
            sizes.append(part.stop - part.start)
    foreign = sorted({*folder.glob("part-*.parquet")} - {*paths})
    if foreign:
        what = f'"{folder}" has {len(foreign):,} files of another question ({foreign[0].name})'
        raise UsageError("C08", what, "name another folder, or remove them")
    for member in live.members:
        member.model.to("cpu")
    shared = (live, sures, nominal)
    done = map_shards(write_shard, shared, missing, on, folder, listener, "scores", sizes, len(rows))
    for shard, _ in zip(missing, done, strict=True):
        if not Path(shard[0]).is_file():
            fix = "name a folder on storage that every machine of the cluster sees under the same path"
            raise ResourceError("C09", f'what a worker wrote is not in "{folder}"', fix)
    return Shards(tuple(paths), len(rows), sum(sizes), asked.headline, live.quality)


def write_shard(shared: tuple[LiveModel, list[Sure], float], shard: tuple[str, Ints, Ints, str]) -> None:
    """Scores the entities of a shard and writes them to its file, whole or not at all."""
    live, sures, nominal = shared
    path, rows, times, digest = shard
    table, _ = live.told(rows, times, live.all_answers(rows, times, SILENT), sures, nominal)
    with new_file(Path(path)) as fresh:
        pq.write_table(
            table.replace_schema_metadata({_DIGEST: digest.encode()}), fresh, write_page_checksum=True
        )


def _digest_of(path: Path) -> str:
    """Returns of what a file says it is; "" where it is not there, or damaged."""
    try:
        read = pq.read_table(path, page_checksum_verification=True)
        return str((read.schema.metadata or {}).get(_DIGEST, b"").decode())
    except (OSError, pa.ArrowException):
        return ""


def _sure_digest(sure: Sure) -> str:
    """Returns a digest of what decides intervals and sets: labels that have become known since change them."""
    facts = (getattr(sure, each.name) for each in fields(sure) if each.init)
    cells = [v.tobytes() if isinstance(v, np.ndarray) else repr(v).encode() for v in facts]
    return hashlib.sha256(b"".join(hashlib.sha256(cell).digest() for cell in cells)).hexdigest()
