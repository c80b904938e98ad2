"""Batches for torch: an ``IterableDataset`` whose workers are parts, and a loader that resumes.

Each worker process holds one :class:`~labeled.Loader` of its own part of the epoch, and each
``iter`` in it begins that loader's next epoch. So workers that live on
(``persistent_workers=True``) need no message, and epochs follow one another in all
of them alike. :func:`data_loader` adds what torch's ``DataLoader`` lacks: epochs of workers that
are started anew, and a state that finds the same place again.

``IterableDataset`` is a class of torch's, made when it is first asked for; nothing here imports
torch before.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from labeled.dataset.dataset import Dataset, shared_options
from labeled.device.handoff import module
from labeled.errors import LoaderError, OptionError, StateError, did_you_mean
from labeled.loader.loader import Loader
from labeled.loader.options import integer, shard_of

__all__ = ["DataLoader", "IterableDataset", "data_loader"]

STATE_VERSION = 3

DECIDED = (
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "drop_last"
)  # fmt: skip
"""What of torch's loader is decided here."""

SHOWN = ("batch_size", "shuffle", "seed")
"""Options that a repr shows."""


class WorkerRows:
    """Batches of torch tensors, shared out to the workers of a DataLoader.

    Give it to a ``torch.utils.data.DataLoader`` with ``batch_size=None``: it makes batches
    itself, and every row comes once an epoch, whatever `num_workers` is.

    Epochs follow one another by themselves where this object lives on: without workers, or with
    ``persistent_workers=True``. Workers that are started anew each epoch begin with the one that
    :meth:`set_epoch` named, as they know only what was set before they were started.
    :func:`labeled.torch.data_loader` does that by itself, and resumes.

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
        check_options(options, "DataLoader(rows, batch_size=None, {name}=...)")
        given = {"batch_size": batch_size, "output": output, **options}
        self.options = shared_options(dataset, given, "this shares out to workers")
        self.dataset = dataset
        self.shard = shard_of(shard)
        self.resumed: Mapping[str, Any] | None = None
        self.begin(int(options.get("epoch", 0)))

    def set_epoch(self, epoch: int) -> None:
        """Name the next epoch; workers that live on do not hear of it, and follow their own."""
        self.begin(integer("epoch", epoch, least=0))

    def begin(self, epoch: int, step: int = 0) -> None:
        """Set the batch of each part at which the next iteration begins."""
        self.epoch, self.step = epoch, step
        self._live: tuple[int, Loader] | None = None

    def loader(self, part: int, n_parts: int, epoch: int, **options: Any) -> Loader:
        """Return the loader of a worker's part, where it was resumed if that is this epoch."""
        index, count = self.shard
        whole = {"shard": (index * n_parts + part, count * n_parts), "epoch": epoch}
        loader = self.dataset.batches(**{**options, **self.options, **whole})
        if self.resumed is not None and self.resumed["epoch"] == epoch:
            loader.load_state_dict(self.resumed)
        return loader

    def __iter__(self) -> Iterator[Any]:
        if self._live is None or self._live[0] != os.getpid():
            self._live = os.getpid(), self._begun()
            if self._live[1].epoch != self.epoch:
                return iter(())  # nothing is left of this part
        return iter(self._live[1])

    def _begun(self) -> Loader:
        """Return the loader of this process, at the place where it begins."""
        info = module("torch.utils.data").get_worker_info()
        part, n_parts = (0, 1) if info is None else (info.id, info.num_workers)
        alone = {} if info is None else {"threads": 0}  # the worker itself reads ahead already
        loader = self.loader(part, n_parts, self.epoch, **alone)
        if self.step:
            state = loader.state_dict()
            loader.load_state_dict({**state, "step": min(self.step, state["n_batches"])})
        return loader

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": None}


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
        Of ``torch.utils.data.DataLoader``: ``pin_memory``, ``prefetch_factor``,
        ``persistent_workers``, ``multiprocessing_context``, ``timeout``, ... Batches come in
        their order, so not ``in_order=False``.
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
    check_options(options, "torch_options={{'{name}': ...}}")
    theirs = checked_options({} if torch_options is None else torch_options)
    rows = iterable_dataset()(dataset, batch_size, shard=shard, **options)
    loader = DataLoader(rows, integer("num_workers", num_workers, least=0), theirs)
    try:
        loader.start()
    except (ValueError, TypeError) as error:
        raise LoaderError(
            f"torch's DataLoader refuses torch_options={theirs} with num_workers={num_workers}: "
            f"{error}"
        ) from error
    return loader


def worker_options() -> list[str]:
    """Return the options of torch's DataLoader that are about how its workers run."""
    parameters = inspect.signature(module("torch.utils.data").DataLoader).parameters
    return [name for name in parameters if name not in DECIDED and name != "self"]


def check_options(options: Mapping[str, Any], remedy: str) -> None:
    """Raise :class:`OptionError` where an option is meant for torch's DataLoader.

    Parameters
    ----------
    remedy : str
        Where to give it, with ``{name}`` in the place of its name.
    """
    for name in options:
        if name in (*worker_options(), "num_workers"):
            raise OptionError(f"{name}= is for torch's DataLoader: say {remedy.format(name=name)}")


def checked_options(torch_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for torch's loader, each of which it has and leaves the order alone.

    Raises
    ------
    LoaderError
        If one decides what this decides, or hands batches out as they come.
    """
    if not isinstance(torch_options, Mapping):
        raise LoaderError(f"torch_options={torch_options!r} must be a mapping of names to values")
    known = worker_options()
    for name in torch_options:
        if name in DECIDED:
            text = "that is for data_loader() to decide; give batch_size=, num_workers=, shuffle= "
            raise LoaderError(f"torch_options={{{name!r}: ...}}: {text}and last= to it")
        if name not in known:
            text = f"is none of torch's DataLoader; {did_you_mean(name, known)}"
            raise LoaderError(f"torch_options={{{name!r}: ...}} {text}")
    if not torch_options.get("in_order", True):
        raise LoaderError(
            "torch_options={'in_order': False} hands batches out as they come, so that a place in "
            "the epoch could not be found again; leave it out"
        )
    return dict(torch_options)


class DataLoader:
    """Epochs of batches from worker processes. Made by :func:`data_loader`.

    Each ``iter`` starts the next epoch, whether or not the last was finished; the first one
    after :meth:`load_state_dict` continues in mid-epoch. There is one live iterator: a second
    one ends the first. ``len`` counts the batches of the coming epoch, over all workers, or
    what there is of it since the number of workers changed.
    """

    def __init__(
        self, rows: WorkerRows, num_workers: int, torch_options: Mapping[str, Any]
    ) -> None:
        self._rows = rows
        self._num_workers = num_workers
        self._torch_options = dict(torch_options)
        self._loader: Any = None
        self._next = rows.epoch, 0
        self._place: tuple[int, int] | None = None
        self._begun = 0
        self._workers_at: int | None = None
        """The whole epoch that workers which live on begin next."""

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
            self._next, self._place = (epoch, 0), None
            self._rows.resumed = None

    def __repr__(self) -> str:
        options = self._rows.options
        shown = "".join(f", {name}={options[name]!r}" for name in SHOWN if name in options)
        return (
            f"<labeled.torch.DataLoader {len(self)} batches, {self._num_workers} workers, "
            f"epoch={self.epoch}{shown}>"
        )

    @property
    def _n_parts(self) -> int:
        return max(1, self._num_workers)

    def _states(self, epoch: int) -> list[dict[str, Any]]:
        """Return the state of each worker where it begins an epoch, or was resumed in it."""
        n = self._n_parts
        loaders = [self._rows.loader(part, n, epoch) for part in range(n)]
        return [loader.state_dict() for loader in loaders if loader.epoch == epoch]

    def _lengths(self, epoch: int) -> list[int]:
        """Return the batches of each worker in an epoch, or in what is left of it."""
        return [state["n_batches"] for state in self._states(epoch)] or [0]

    def __len__(self) -> int:
        return sum(self._lengths(self.epoch))

    def __iter__(self) -> Iterator[Any]:
        epoch, delivered = self._place = self._next
        self._next = epoch + 1, 0
        self._begun += 1
        if delivered >= sum(self._lengths(epoch)):
            return iter(())
        return self._batches(epoch, delivered, self._begun)

    def start(self) -> None:
        """Make torch's loader, whose workers start with the epoch."""
        self._loader = module("torch.utils.data").DataLoader(
            self._rows, batch_size=None, num_workers=self._num_workers, **self._torch_options
        )

    def _batches(self, epoch: int, delivered: int, number: int) -> Iterator[Any]:
        self._check_live(number)
        # torch takes a batch of each worker in turn, from the first on: its round begins anew
        step, again = divmod(delivered, self._n_parts)
        if delivered or self._workers_at != epoch:
            self._rows.begin(epoch, step)
            self.start()  # and let go of workers that live on
        lives_on = not self._num_workers or self._torch_options.get("persistent_workers")
        self._workers_at = epoch + 1 if lives_on else None
        for batch in islice(self._loader, again, None):
            delivered += 1
            self._place = epoch, delivered
            yield batch
            self._check_live(number)  # before workers that live on are asked for one more

    def _check_live(self, number: int) -> None:
        """Raise :class:`LoaderError` in an iteration that is not the last that was begun."""
        if number != self._begun:
            raise LoaderError(
                "this iteration ended when another one of the same data_loader began, whose "
                "batches its workers make now; make a second one to iterate twice at the same time"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the epoch as plain values; it counts batches handed out.

        Restored with as many workers, the same batches follow in the same order. Where
        every worker has handed out as many, the number of workers may change.
        """
        epoch, delivered = self._place or self._next
        if delivered >= sum(self._lengths(epoch)):
            epoch, delivered = epoch + 1, 0
        lead = {**self._states(epoch)[0], "step": delivered // self._n_parts, "shard": None}
        return {
            "state_version": STATE_VERSION,
            "num_workers": self._n_parts,
            "delivered": delivered,
            "lead": lead,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved; the next ``iter`` continues in mid-epoch.

        Raises
        ------
        StateError
            If the state was saved for other rows, another order or batch size; or with
            another number of workers, of which some had handed out one batch more.
        """
        found = {"state_version", "num_workers", "delivered", "lead"}
        if set(state) != found or state["state_version"] != STATE_VERSION:
            raise StateError("not a state of this data_loader: it has other entries or a version")
        lead, delivered = dict(state["lead"]), int(state["delivered"])
        ahead = delivered % state["num_workers"]
        if state["num_workers"] == self._n_parts:
            lead["step"] = 0
        elif ahead:
            raise StateError(
                f"the state was saved with {state['num_workers']} workers, the first {ahead} of "
                "them a batch ahead: go on with as many, or save where every worker has handed out "
                "as many batches"
            )
        else:
            delivered = 0
        rows = self._rows
        before = rows.resumed, rows.options
        rows.resumed = lead
        if "seed" in rows.options:  # later epochs follow that of the state, too
            rows.options = {**rows.options, "seed": lead["seed"]}
        try:
            self._lengths(lead["epoch"])  # complains about what does not fit
        except StateError:
            rows.resumed, rows.options = before
            raise
        self._next, self._place = (lead["epoch"], delivered), None
        self._workers_at = None  # workers that live on do not know of it
