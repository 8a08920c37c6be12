"""Contexts in one file, whole or absent."""
