"""What a GPU gets of all this: ``python -m benchmarks.gpu.first_contact``."""
