"""Feeding batches: plans made of integers, threads that read, batches handed out.

Which file to open: `options` is what a user asks, as one value, and which order of rows that
means; `plan` is everything that is decided once; `loader` walks through its epochs, saves places
and finds them again. What they stand on, along the way of a batch:

- `memory`: the sum of what a loader takes, and how large windows are within it.
- `prefetch` has the threads that read jobs, into which the plan cuts windows; `reading` says
  what is read of a source, and has the memory.
- `collate` cuts batches from jobs and takes them through a pipeline, `layout` is what they look
  like, `batch` is what is handed out, `handover` makes arrays of another library of it.
- `device`: the same where the batches live on a GPU.
- `explain` predicts an epoch, and says what one took.

Words, each for one thing:

- row, position, place: counted in the file; in the dataset or its order; as they are handed out.
- run: rows that follow one another, as (first, one past the last).
- unit: the smallest run that is read together; window: the units that are shuffled together.
- job: what is read ahead at once, into one buffer: a window, or a piece of one.
- task: a part of a job, which one thread does with one call.
- buffer: host memory of a job, used again once no batch refers to it; a pool has several.
- batch: rows that are handed out together, cut from one job or joined from several.
- kept: read once and held for all epochs; resident: held on a device.
- epoch plan: which rows a shard gets, and when; loader plan: all that is decided once.
- row layout: how rows are stored; batch layout: what batches look like.
"""
