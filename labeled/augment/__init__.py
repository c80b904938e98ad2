"""Changes of pictures."""
