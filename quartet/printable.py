"""Text from data, fit to be shown: names and cells cannot give orders to a terminal or break a picture."""

from __future__ import annotations


def printable(text: object) -> str:
    """The text with a mark in place of every control letter."""
    return "".join(letter if letter.isprintable() else "�" for letter in str(text))
