"""The database floor: tables, keys, times, links; readers for every kind of source."""
