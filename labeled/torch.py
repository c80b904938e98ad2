"""Batches for torch: an ``IterableDataset`` whose workers are shards, and a loader that resumes.

Each worker process holds one :class:`~labeled.Loader` of its own share of the epoch, and each
``iter`` in it begins that loader's next epoch. The place where an epoch begins lies in memory that
workers share with the process that made them, so they all hear of another one.

``IterableDataset`` is a class of torch's, made when it is first asked for; nothing here imports
torch before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import islice, repeat
from typing import Any

from labeled._validation import check_arguments, integer
from labeled.dataset.dataset import Dataset, shared_options
from labeled.device import module
from labeled.errors import LoaderError, StateError
from labeled.loader.loader import EpochIterator, Loader
from labeled.loader.options import shard_of

__all__ = ["DataLoader", "IterableDataset", "data_loader"]

STATE_VERSION = 4
STATE = ("state_version", "num_workers", "delivered", "first")


class WorkerRows:
    """Batches of torch tensors, shared out to the workers of a DataLoader.

    Give it to a ``torch.utils.data.DataLoader`` with ``batch_size=None``: it makes batches
    itself, and every row comes once an epoch, whatever `num_workers` is.

    Epochs follow one another by themselves where this object lives on: without workers, or with
    ``persistent_workers=True``. Workers that are started anew each epoch begin with the one that
    :meth:`set_epoch` named. :func:`labeled.torch.data_loader` does that by itself, and resumes.

    Parameters
    ----------
    dataset : Dataset
    batch_size : int
    shard : (index, count)
        Of this process among others, such as (rank, world size); workers share it further.
    output : str
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
        shard: tuple[int, int] = (0, 1),
        output: str = "torch",
        **options: Any,
    ) -> None:
        _check_dataset(dataset)
        given = {"batch_size": batch_size, "output": output, **options}
        self.options = shared_options(dataset, given, "this shares out to workers")
        self.dataset, self.seeded = dataset, options.get("seed") is not None
        self.shard = shard_of(shard)
        self._place = module("torch").zeros(3, dtype=module("torch").int64).share_memory_()
        self._live: tuple[int, int, Loader] | None = None
        self.follows = True  # each `iter` begins the next epoch, unless one is named
        self.begin(int(options.get("epoch", 0)))

    def set_epoch(self, epoch: int) -> None:
        """Name the next epoch, also to workers that live on."""
        self.begin(integer("epoch", epoch, least=0))

    def begin(self, epoch: int, step: int = 0) -> None:
        """Set the batch of each worker at which the next iteration begins."""
        change = int(self._place[0]) + 1
        self._place[1], self._place[2], self._place[0] = epoch, step, change

    def loader(self, part: int, n_parts: int, epoch: int, **options: Any) -> Loader:
        """Return the loader of one of `n_parts` workers."""
        index, count = self.shard
        options |= {"shard": (index * n_parts + part, count * n_parts), "epoch": epoch}
        return self.dataset.batches(**{**self.options, **options})

    def __iter__(self) -> Iterator[Any]:
        change, epoch, step = self._place.tolist()
        if self._live is None or not self.follows or self._live[:2] != (os.getpid(), change):
            info = module("torch.utils.data").get_worker_info()
            part, n_parts = (0, 1) if info is None else (info.id, info.num_workers)
            if info is not None and self.options.get("device", "cpu") != "cpu":
                raise LoaderError(
                    f"device={self.options['device']!r} does not go with num_workers="
                    f"{info.num_workers}: a worker process hands over no memory of a GPU. Take "
                    "num_workers=0, whose threads read ahead, or leave device out and move each "
                    "batch by x.to('cuda')"
                )
            # a worker reads ahead already
            alone = {} if info is None else {"threads": self.options.get("threads", 0)}
            loader = self.loader(part, n_parts, epoch, **alone)
            self._live = os.getpid(), change, loader
            if step:
                state = loader.state_dict()
                loader.load_state_dict({**state, "step": min(step, state["n_batches"])})
            if loader.epoch != epoch:
                return iter(())  # nothing is left of this part
        batches = iter(self._live[2])
        return batches if self.follows else _counted(batches)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._place.share_memory_()  # memory of a copy is not, which its workers would not hear of


def _check_dataset(given: Any) -> None:
    if not isinstance(given, Dataset):
        made = type(given).__name__
        raise LoaderError(f"give what labeled.open_dataset returns, not {made} ({given!r:.40})")


def _counted(batches: EpochIterator[Any]) -> Iterator[Any]:
    """Yield batches, and None in place of those that lost all rows: places count them, too."""
    left = len(batches)
    for batch in batches:
        yield from repeat(None, left - len(batches) - 1)
        left = len(batches)
        yield batch
    yield from repeat(None, left)


def _collated(collate: Callable[[Any], Any], batch: Any) -> Any:
    return None if batch is None else collate(batch)


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


IterableDataset: type[WorkerRows]


def __getattr__(name: str) -> Any:
    if name == "IterableDataset":
        return iterable_dataset()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def data_loader(
    dataset: Dataset,
    batch_size: int | None = None,
    *,
    num_workers: int = 0,
    shard: tuple[int, int] = (0, 1),
    torch_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> DataLoader:
    """Make batches of torch tensors in worker processes of torch's.

    The loader of :meth:`labeled.Dataset.batches` with ``output="torch"`` reads in threads and
    is faster for what it does itself; worker processes pay where Python code of your own
    runs on every batch.

    Parameters
    ----------
    dataset : Dataset
    batch_size : int
    num_workers : int
        Processes; each serves a part of the epoch, and every row comes once.
    shard : (index, count)
        Of this process among others: (rank, world size).
    torch_options : mapping, optional
        Of ``torch.utils.data.DataLoader``: ``prefetch_factor``, ``persistent_workers``,
        ``multiprocessing_context``, ``timeout``, ... Batches come in their order, so not
        ``in_order=False``. With workers, ``pin_memory`` pins where ``pinned=True`` cannot: a
        batch comes from its process in other memory.
    **options
        As for :meth:`labeled.Dataset.batches`.

    Returns
    -------
    DataLoader

    Raises
    ------
    MissingExtraError
        If torch is not installed.
    LoaderError
        If an option is impossible, or is not torch's to decide.
    """
    rows = iterable_dataset()(dataset, batch_size, shard=shard, **options)
    return DataLoader(rows, integer("num_workers", num_workers, least=0), torch_options or {})


class DataLoader:
    """Epochs of batches from worker processes. Made by :func:`data_loader`.

    Each ``iter`` starts the next epoch, whether or not the last was finished; the first one
    after :meth:`load_state_dict` continues in mid-epoch. There is one live iterator: a second
    one ends the first. ``len`` counts the batches of an epoch, over all workers.
    """

    def __init__(self, rows: WorkerRows, n_workers: int, torch_options: Mapping[str, Any]) -> None:
        self._rows, self._n_parts, self._begun = rows, max(1, n_workers), 0
        # epoch and batches handed out: where the next `iter` begins, and what a state says
        self._next = self._place = int(rows.options.get("epoch") or 0), 0
        if not torch_options.get("in_order", True):
            raise LoaderError(
                "torch_options={'in_order': False} hands batches out as they come, so that a place "
                "in the epoch could not be found again; leave it out"
            )
        self._options, self._n_workers = dict(torch_options), n_workers
        if self._options.get("collate_fn") is not None:
            self._options["collate_fn"] = partial(_collated, self._options["collate_fn"])
        rows.follows = False  # a worker may begin so late that it finds the epoch after its own
        try:
            self._start()
        except (ValueError, TypeError) as error:
            raise LoaderError(
                f"torch's DataLoader refuses torch_options={dict(torch_options)} with "
                f"num_workers={n_workers}: {error}"
            ) from error

    def _start(self) -> None:
        """Make torch's loader, whose workers start with the epoch."""
        made = module("torch.utils.data").DataLoader
        sizes = {"batch_size": None, "num_workers": self._n_workers}
        self._loader = made(self._rows, **sizes, **self._options)

    @property
    def epoch(self) -> int:
        """The epoch that the next ``iter`` starts, or continues."""
        return self._next[0]

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch that the next ``iter`` starts, for loops that count epochs themselves.

        The epoch that comes next anyway stays as it is, so that one restored by
        :meth:`load_state_dict` continues in its middle.
        """
        epoch = integer("epoch", epoch, least=0)
        if epoch != self.epoch:
            self._next = self._place = epoch, 0

    def __repr__(self) -> str:
        n = self._n_workers
        return f"<labeled.torch.DataLoader {len(self)} batches, {n} workers, epoch={self.epoch}>"

    def __len__(self) -> int:
        parts = range(self._n_parts)
        return sum(len(self._rows.loader(part, self._n_parts, self.epoch)) for part in parts)

    def __iter__(self) -> Iterator[Any]:
        epoch, delivered = self._place = self._next
        self._next, self._begun = (epoch + 1, 0), self._begun + 1
        return self._batches(epoch, delivered, self._begun)

    def _batches(self, epoch: int, delivered: int, number: int) -> Iterator[Any]:
        self._check_live(number)
        # torch takes a batch of each worker in turn, from the first on: its round begins anew
        step, again = divmod(delivered, self._n_parts)
        self._rows.begin(epoch, step)
        for batch in islice(self._loader, again, None):
            delivered += 1
            self._place = epoch, delivered
            if batch is not None:
                yield batch
            self._check_live(number)  # before workers that live on are asked for one more
        self._place = self._next

    def _check_live(self, number: int) -> None:
        """Raise :class:`LoaderError` in an iteration that is not the last that was begun."""
        if number != self._begun:
            raise LoaderError(
                "this iteration ended when another one of the same data_loader began, or a state "
                "was loaded: its workers make other batches now; make a second one to iterate "
                "twice at the same time"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the epoch as plain values; it counts batches handed out.

        Restored with as many workers, the same batches follow in the same order.
        """
        epoch, delivered = self._place
        if delivered >= len(self):
            epoch, delivered = self._next
        first = self._rows.loader(0, self._n_parts, epoch).state_dict()
        return dict(zip(STATE, (STATE_VERSION, self._n_parts, delivered, first), strict=True))

    @check_arguments(StateError)
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved; the next ``iter`` continues in mid-epoch.

        Raises
        ------
        StateError
            If the state was saved for other rows, another order or batch size, or with another
            number of workers or shards.
        """
        if {*state} != {*STATE} or state["state_version"] != STATE_VERSION:
            raise StateError("not a state of this data_loader: it has other entries or a version")
        if state["num_workers"] != self._n_parts:
            raise StateError(
                f"saved with {state['num_workers']} workers, not {self._n_parts}: take as many"
            )
        first, n_shards = state["first"], self._rows.shard[1]
        saved_by = first["count"] // self._n_parts
        if saved_by != n_shards:
            raise StateError(
                f"saved by one of {saved_by} shards, not of {n_shards}: take "
                "as many; states of ds.batches(...) go on with any number, by labeled.merge_states"
            )
        seed = {"seed": first["seed"]} if "seed" in self._rows.options else {}
        drawn = {} if self._rows.seeded else seed  # one that was given may be warned about
        loader = self._rows.loader(0, self._n_parts, int(first["epoch"]), **drawn)
        loader.load_state_dict(first)  # complains about what does not fit
        self._rows.options |= seed  # later epochs follow that of the state, too
        self._next = self._place = int(first["epoch"]), int(state["delivered"])
        self._begun += 1
        self._start()  # workers that live on do not know the seed
