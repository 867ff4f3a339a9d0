"""`python -m greyhound` is the `greyhound` command."""

from greyhound.cli.main import main

main(prog_name="greyhound")
