"""Files, splits and selections as lazy labelled arrays: what lies between bytes and users."""
