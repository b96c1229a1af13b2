"""`python -m palmette`: the command line."""

from palmette.runtime.cli.app import main

main()
