"""The one setting that spaces depended on: what ``'floatX'`` stands for.

Assign to ``labeled.compat.pylearn2.config.floatX`` before making spaces.
"""

floatX = "float64"
