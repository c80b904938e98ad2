"""The command line: `main` with the small commands, and a module for each large one.

Nothing else imports this.
"""
