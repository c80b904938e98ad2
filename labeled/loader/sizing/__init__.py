"""Memory, and what it allows.

`memory` is the option, `budget` what is taken first, `cutting` the windows, jobs or blocks of the
rest, and threads; `sizes` is the outcome. `fitting` is all of it together, or how much would be
enough; `ragged_bounds` is the most that examples of different shapes take.
"""
