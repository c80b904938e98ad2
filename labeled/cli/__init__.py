"""The command line, a module a command. Nothing else imports this."""
