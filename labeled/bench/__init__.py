"""Measuring how fast batches of a file can be had: by this library, by others, by bare loops.

What is measured is a :class:`~labeled.bench.subject.Subject`; each :class:`~.timing.Way` to
get batches of it is timed by the same consumer, turn by turn. ``labeled bench FILE`` does it
on a file of anybody's. Other loaders are imported only when they are measured, each in its
own module of :mod:`.peers`.
"""
