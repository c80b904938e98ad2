"""Which rows come when.

`ordering` makes the order of an epoch, `units` say what is read together, `bucketing` brings
rows of like length together.
"""
