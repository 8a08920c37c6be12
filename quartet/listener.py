"""Listener: is told what happens on the way, from reading a database to the last epoch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from quartet.findings import Finding


class Listener:
    """Follows a piece of work. Every method does nothing unless a subclass says otherwise."""

    def finding(self, finding: Finding) -> None:
        """Something was noticed or repaired in the data."""

    def noticed(self, findings: Iterable[Finding]) -> None:
        """Some things were noticed together: each is a `finding`, unless a subclass has more to say of them all."""
        for finding in findings:
            self.finding(finding)

    def progress(self, what: str, done: int, total: int) -> None:
        """So many more items of `what` are done, of `total` in all."""

    def begin(self, training: Any) -> None:
        """A training begins; it is a `quartet.training.Training`."""

    def turned(self, dial: Any) -> None:
        """Trials have shown which parts are worth their cost; they are a `quartet.models.Dial`."""

    def step(self, num_seeds: int) -> None:
        """A step on so many seeds is done."""

    def epoch(self, epoch: Any) -> None:
        """An epoch is done; it is a `quartet.training.Epoch`."""

    def member(self, member: Any, fitted: Any) -> None:
        """A member of a portfolio (`quartet.training.Member`) is done; all that are done together are `fitted`."""

    def end(self, fitted: Any, folder: Path) -> None:
        """A training is done, and its model is kept in a folder; it is a `quartet.training.Fitted`."""

    def close(self) -> None:
        """The work has ended, well or not: nothing more will be told."""

    def should_stop(self) -> bool:
        """Whether the work should end after the step under way."""
        return False


SILENT = Listener()
