"""Feeding batches: plans made of integers, threads that read, batches handed out.

Which file to open, along the way of a batch:

- **Asking.** `build` goes from what a user asks to a plan; `options` lists what can be asked,
  `arguments` and `choices` check it, `casts` and `classes` what it asks of sources.
- **Order.** `ordering` (which rows, when), `units` (what is read together), `bucketing`; the
  integers themselves are in :mod:`labeled.samplers`.
- **Memory.** `memory` (the option), `budget` (what is taken first), `cutting` (windows, jobs or
  blocks of the rest, threads), `sizes` (the outcome), `fitting` (all of it together, or how much
  would be enough), `ragged_bounds` (the most that examples of different shapes take).
- **Plan.** `plan` is everything that is decided once; `loader` walks through its epochs, saves
  places and finds them again; `jobs` cuts an epoch into what is read at once.
- **Reading.** `engine` (threads that fill windows), `lanes` and `ragged_lane` (what is read of a
  source), `slots` (memory), `staggering` (blocks that stay open), `filled` (a window on its way),
  `rescue` (what is left of one that cannot be read), `crew` (starting and ending threads).
  In a process of its own: `process` here, `child` there, `shared` between them.
- **Batches.** `dealing` cuts them from windows, `finish`, `ragged_finish`, `padded` and `laying`
  lay them out, `batch` is what is handed out without specs, `handoff` another library's arrays,
  `workers` takes them through a pipeline.
- **Devices.** `device_plan` (what goes there), `uploads` (windows on their way), `decoding`
  (chunks decoded there), `direct` (files read by the device), `device_dealing` (batches made
  there), `placing` (what a pipeline made on the host).
- **Telling.** `explain` puts an `explanation` together of `costs`, `mixing` and `first_reads`;
  `stats` and `timeline` tell of an epoch afterwards; `looks` and `pictures` show a loader.
"""
