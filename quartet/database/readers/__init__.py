"""Readers: one file for each kind of source; `read.py` decides which one a source is for."""
