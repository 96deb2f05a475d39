"""The command line."""

from tacit.cli.commands import EXIT_CODES, app

__all__ = ["EXIT_CODES", "app"]
