"""`python -m quartet` is the command `quartet`."""

from quartet.cli import main

main()
