"""Plain-Python twins of what the package compiles: slow, short, and written from the definitions."""
