"""How targets are written: the old one-hot helpers."""
