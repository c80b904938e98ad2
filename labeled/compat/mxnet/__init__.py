"""The data iterators of MXNet and of its Julia package, with the old behaviour to the letter."""
