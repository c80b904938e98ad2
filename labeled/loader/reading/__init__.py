"""Filling windows with rows.

`engine` has the threads, `jobs` cuts an epoch into what is read at once, `lanes` and
`ragged_lane` say what is read of a source, `slots` are the memory, `dealt` how ragged examples
lie in it; `filled` is a window on its way, `rescue` what
is left of one that cannot be read, `crew` starts and ends threads.
"""
