"""Measurements of every speed that the design promises, next to other loaders.

``python -m benchmarks.run`` measures everything in one run; ``--quick`` takes minutes.
"""
