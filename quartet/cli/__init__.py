"""The command line: verbs in files of their names, and in `views/` what people see."""

from quartet.cli.app import main

__all__ = ["main"]
