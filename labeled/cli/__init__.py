"""The command line: `main`, a module for each large command, `writing` for the small ones.

Nothing else imports this.
"""
