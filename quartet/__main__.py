"""`python -m quartet` is the command `quartet`."""

from quartet.cli.app import main

main()
