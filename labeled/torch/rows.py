"""A dataset that a torch DataLoader iterates: each worker is a part of the epoch.

Which part and which batches are read from a few integers in shared memory, so that
workers that live on through epochs see them too. A worker may come to read them late, when
the epoch it was to make is broken off and another one told: a new worker takes what was
told when it was made, and one that is told every epoch knows how many it has missed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from labeled.api.dataset import Dataset
from labeled.api.shares import shared_options
from labeled.device.handoff import module
from labeled.errors import OptionError, warn
from labeled.loader.loader import Loader
from labeled.loader.request.arguments import integer, part_of
from labeled.torch.turns import Turn

OF_WORKERS = (
    "in_order", "multiprocessing_context", "num_workers", "persistent_workers", "pin_memory",
    "pin_memory_device", "prefetch_factor", "timeout", "worker_init_fn",
)  # fmt: skip
"""Options of torch's DataLoader that tell how its worker processes run."""

MOST_WORKERS = 1024
"""Of one DataLoader, as far as they are looked after."""

LATE_S = 10.0
"""How long workers are waited for that have not looked yet which epoch they should make."""

DEALS = "this deals out to workers: give the share of this process, such as a rank, as share="


def check_options(options: Mapping[str, Any], remedy: str) -> None:
    """Raise :class:`OptionError` where an option is meant for torch's DataLoader.

    Parameters
    ----------
    remedy : str
        Where to give it, with ``{name}`` in the place of its name.
    """
    for name in options:
        if name in OF_WORKERS:
            raise OptionError(f"{name}= is for torch's DataLoader: say {remedy.format(name=name)}")


class WorkerRows:
    """Batches of torch tensors, dealt out to the workers of a DataLoader.

    Give it to a ``torch.utils.data.DataLoader`` with ``batch_size=None``: it makes batches
    itself, and every row comes once an epoch, whatever `num_workers` is.

    Epochs follow one another by themselves where this object lives on: without workers, or
    with ``persistent_workers=True``. Workers that are started anew each epoch know only
    what :meth:`set_epoch` said; :func:`labeled.torch.data_loader` does that, and resumes.

    Parameters
    ----------
    dataset : Dataset
    batch_size : int
    share : (index, count)
        Of this process among others, such as (rank, world size); workers share it further.
    as_ : str
        As for ``batches``; ``"numpy"`` leaves the hand-off to torch.
    **options
        As for :meth:`labeled.Dataset.batches`. Workers read in no further threads unless
        `threads` says so, and `memory` is that of each.

    Examples
    --------
    >>> rows = labeled.torch.IterableDataset(train, 256, shuffle=True)  # doctest: +SKIP
    >>> for batch in torch.utils.data.DataLoader(  # doctest: +SKIP
    ...     rows, batch_size=None, num_workers=4, persistent_workers=True
    ... ):
    ...     batch["images"].shape
    torch.Size([256, 3, 32, 32])
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | None = None,
        *,
        share: tuple[int, int] = (0, 1),
        as_: str = "torch",
        **options: Any,
    ) -> None:
        check_options(options, "DataLoader(rows, batch_size=None, {name}=...)")
        given = {"batch_size": batch_size, "as_": as_, **options}
        self.options = shared_options(dataset, given, DEALS)
        self.dataset = dataset
        self.share = part_of(share)
        self.resumed: Mapping[str, Any] | None = None
        self.first_epoch = int(options.get("epoch", 0))
        self.each_told = False  # whether somebody tells every epoch before it begins
        self._said = [1, self.first_epoch, 0, 0]
        self._told = module("torch").tensor(self._said).share_memory_()
        # how many workers there are, and how many epochs each of them has begun
        self._begun = module("torch").zeros(1 + MOST_WORKERS, dtype=int).share_memory_()
        self._process: int | None = None
        self._heard = 0
        self._again = 0
        self._n_begun = 0

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch is next, also to workers that live on."""
        epoch = integer("epoch", epoch, least=0)
        self._wait_for_late()
        self.tell(epoch, Turn(0, 0))

    def _wait_for_late(self) -> None:
        """Wait until all workers have looked which epoch they should make, if one of them has.

        torch begins an epoch once all workers have heard of it, and they look a moment later.
        Where it is broken off in that moment, a late one would look only at what is told now.
        """
        end = time.monotonic() + LATE_S
        while len(set(self._begun[1 : 1 + int(self._begun[0])].tolist()) - {0}) > 1:
            if time.monotonic() > end:
                warn(
                    f"a worker has not begun the last epoch for {LATE_S:g} s, and may make another "
                    "one than the others; labeled.torch.data_loader(...) does not depend on that"
                )
                return
            time.sleep(0.001)

    def tell(self, epoch: int, turn: Turn) -> None:
        """Say which epoch is next, and where in it workers begin."""
        self._said = [self._said[0] + 1, epoch, *turn]
        self._told[1:] = module("torch").tensor(self._said[1:])
        self._told[0] += 1

    def loader(self, part: int, n_parts: int, epoch: int, **options: Any) -> Loader | None:
        """Return the loader of a worker's part, where it was resumed; None if nothing is left."""
        index, count = self.share
        whole = {"part": (index * n_parts + part, count * n_parts), "epoch": epoch}
        loader = self.dataset.batches(**{**options, **self.options, **whole})
        if self.resumed is not None and self.resumed["epoch"] == epoch:
            loader.load_state_dict(self.resumed)
        return loader if loader.epoch == epoch else None  # at its end it stands at the next one

    def __iter__(self) -> Iterator[Any]:
        info = module("torch.utils.data").get_worker_info()
        worker, n_workers = (0, 1) if info is None else (info.id, info.num_workers)
        asked = self._asked(in_worker=info is not None)
        if info is not None and worker < MOST_WORKERS:
            self._begun[0] = min(n_workers, MOST_WORKERS)
            self._begun[1 + worker] = self._n_begun
        if asked is None:
            return iter(())
        epoch, turn = asked
        part, step = turn.part(worker, n_workers)
        alone = {} if info is None else {"threads": 0}  # the worker itself reads ahead already
        return started_at(self.loader(part, n_workers, epoch, **alone), step)

    def _asked(self, *, in_worker: bool) -> tuple[int, Turn] | None:
        """Return which epoch to make and where it begins; None if nobody waits for it any more."""
        lives_on = in_worker and self._process == os.getpid()
        self._process = os.getpid()
        self._n_begun = self._n_begun + 1 if lives_on else 1
        heard, epoch, *place = self._told.tolist() if lives_on else self._said
        if self.each_told:
            self._heard = self._heard + 1 if lives_on else heard
            return (epoch, Turn(*place)) if heard == self._heard else None
        self._again = self._again + 1 if heard == self._heard else 0
        self._heard = heard
        if self._again:  # nobody said anything since the last time: the next epoch
            return epoch + self._again, Turn(0, 0)
        return epoch, Turn(*place)


def started_at(loader: Loader | None, step: int) -> Iterator[Any]:
    """Iterate the coming epoch from one of its batches on; nothing at its end."""
    state = None if loader is None else loader.state_dict()
    if loader is None or state is None or step >= state["n_batches"]:
        return iter(())
    if step > 0:
        loader.load_state_dict({**state, "step": step})
    return iter(loader)


@lru_cache(maxsize=1)
def iterable_dataset() -> type[WorkerRows]:
    """Return :class:`WorkerRows` as a class of torch's, which its DataLoader knows as such.

    Raises
    ------
    MissingExtraError
        If torch is not installed.
    """
    base = module("torch.utils.data").IterableDataset
    names = {"__module__": "labeled.torch", "__doc__": WorkerRows.__doc__}
    return type("IterableDataset", (WorkerRows, base), names)
