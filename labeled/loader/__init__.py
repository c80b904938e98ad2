"""Feeding batches: plans made of integers, threads that read, batches handed out.

Which file to open: `build` goes from what a user asks to a plan; `plan` is everything that is
decided once; `loader` walks through its epochs, saves places and finds them again. What they
stand on, along the way of a batch:

- `request`: the options, and what is asked of each source.
- `order`: which rows, when, and what is read together; the integers themselves are in
  :mod:`labeled.samplers`.
- `sizing`: memory, and what it allows: windows, jobs, blocks, threads.
- `reading`: threads, or a process of its own, that fill windows.
- `batches`: cut from windows, laid out, handed over.
- `devices`: the same where the batches live on a GPU.
- `telling`: what `explain()` foretells, what an epoch took, and pictures of both.
"""
