"""The command line: ``labeled info | head | demo``. Nothing else imports this."""
