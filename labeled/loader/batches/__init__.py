"""Batches, from windows to the consumer.

`dealing` cuts them from windows; `finish`, `ragged_finish`, `padded` and `laying` lay them out;
`batch` is what is handed out without specs, `handoff` makes the arrays of another library;
`workers` takes them through a pipeline.
"""
