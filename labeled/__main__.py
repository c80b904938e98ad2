"""``python -m labeled`` is the command ``labeled``."""

from labeled.cli.main import main

main(prog_name="labeled")
