"""A DataLoader of torch's over parts of a dataset, epoch after epoch, with exact resume."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from labeled.api.dataset import Dataset
from labeled.device.handoff import module
from labeled.errors import LoaderError, StateError, did_you_mean
from labeled.loader.request.arguments import integer
from labeled.torch.rows import WorkerRows, check_options, iterable_dataset
from labeled.torch.turns import Turn, turn_after

STATE_VERSION = 1

DECIDED = (
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "drop_last"
)  # fmt: skip
"""What of torch's loader is decided here."""

TOLD = ("batch_size", "shuffle", "seed")
"""Options that are worth showing."""


def data_loader(
    dataset: Dataset,
    batch_size: int | None = None,
    *,
    num_workers: int = 0,
    share: tuple[int, int] = (0, 1),
    torch_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> DataLoader:
    """Make batches of torch tensors in worker processes of torch's.

    The loader of :meth:`labeled.Dataset.batches` with ``as_="torch"`` reads in threads and
    is faster for what it does itself; worker processes pay where Python code of your own
    runs on every batch.

    Parameters
    ----------
    dataset : Dataset
    batch_size : int
    num_workers : int
        Processes; each serves a part of the epoch, and every row comes once.
    share : (index, count)
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
    theirs = checked_options(torch_options or {})
    rows = iterable_dataset()(dataset, batch_size, share=share, **options)
    loader = DataLoader(rows, integer("num_workers", num_workers, least=0), theirs)
    try:
        loader.start()
    except (ValueError, TypeError) as error:
        raise LoaderError(
            f"torch's DataLoader refuses torch_options={theirs} with num_workers={num_workers}: "
            f"{error}"
        ) from error
    return loader


def checked_options(torch_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for torch's loader, each of which it has and leaves the order alone.

    Raises
    ------
    LoaderError
        If one decides what this decides, or hands batches out as they come.
    """
    theirs = dict(torch_options)
    for name in theirs:
        if name in DECIDED:
            raise LoaderError(
                f"torch_options={{{name!r}: ...}}: that is for data_loader() to decide; give "
                "batch_size=, num_workers=, shuffle= and last= to it"
            )
    if not theirs.get("in_order", True):
        raise LoaderError(
            "torch_options={'in_order': False} hands batches out as they come, so that a place in "
            "the epoch could not be found again; leave it out"
        )
    known = inspect.signature(module("torch.utils.data").DataLoader).parameters
    for name in theirs:
        if name not in known:
            raise LoaderError(
                f"torch_options={{{name!r}: ...}} is none of torch's DataLoader; "
                f"{did_you_mean(name, [one for one in known if one not in DECIDED])}"
            )
    return theirs


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
        rows.each_told = True
        self._num_workers = num_workers
        self._torch_options = dict(torch_options)
        self._loader: Any = None
        self._next = rows.first_epoch, 0
        self._place: tuple[int, int] | None = None
        self._begun = 0

    @property
    def epoch(self) -> int:
        """The epoch that the next ``iter`` starts, or continues."""
        return self._next[0]

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next ``iter`` starts, for loops that count epochs themselves.

        The epoch that comes next anyway stays as it is, so that one restored by
        :meth:`load_state_dict` continues in its middle.
        """
        epoch = integer("epoch", epoch, least=0)
        if epoch != self.epoch:
            self._next, self._place = (epoch, 0), None
            if self._rows.resumed is not None:  # workers that live on know of it
                self._rows.resumed = self._loader = None

    def __repr__(self) -> str:
        options = self._rows.options
        told = "".join(f", {name}={options[name]!r}" for name in TOLD if name in options)
        return (
            f"<labeled.torch.DataLoader {len(self)} batches, {self._num_workers} workers, "
            f"epoch={self.epoch}{told}>"
        )

    @property
    def _n_parts(self) -> int:
        return max(1, self._num_workers)

    def _lengths(self, epoch: int) -> list[int]:
        """Batches of each worker in an epoch."""
        loaders = (self._rows.loader(w, self._n_parts, epoch) for w in range(self._n_parts))
        return [0 if one is None else one.state_dict()["n_batches"] for one in loaders]

    def __len__(self) -> int:
        return sum(self._lengths(self.epoch))

    def __iter__(self) -> Iterator[Any]:
        epoch, delivered = self._place = self._next
        self._next = epoch + 1, 0
        self._begun += 1
        turn = turn_after(self._lengths(epoch), delivered)
        return iter(()) if turn is None else self._batches(epoch, delivered, turn, self._begun)

    def start(self) -> None:
        """Make torch's loader, if there is none; its workers start with the epoch."""
        if self._loader is None:
            self._loader = module("torch.utils.data").DataLoader(
                self._rows, batch_size=None, num_workers=self._num_workers, **self._torch_options
            )

    def _batches(self, epoch: int, delivered: int, turn: Turn, number: int) -> Iterator[Any]:
        self._check_live(number)
        self.start()
        self._rows.tell(epoch, turn)
        for batch in self._loader:
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
        turn = turn_after(self._lengths(epoch), delivered)
        if turn is None:
            epoch, delivered, turn = epoch + 1, 0, Turn(0, 0)
        lead = next(
            one
            for one in (self._rows.loader(w, self._n_parts, epoch) for w in range(self._n_parts))
            if one is not None
        )
        return {
            "state_version": STATE_VERSION,
            "num_workers": self._n_parts,
            "delivered": delivered,
            "first": turn.first,
            "lead": {**lead.state_dict(), "step": turn.step, "part": None},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved; the next ``iter`` continues in mid-epoch.

        Raises
        ------
        StateError
            If the state was saved for other rows, another order or batch size; or with
            another number of workers, of which some had handed out one batch more.
        """
        found = {"state_version", "num_workers", "delivered", "first", "lead"}
        if set(state) != found or state["state_version"] != STATE_VERSION:
            raise StateError("not a state of this data_loader: it has other entries or a version")
        lead, delivered = dict(state["lead"]), int(state["delivered"])
        if state["num_workers"] == self._n_parts:
            lead["step"] = 0
        elif state["first"]:
            raise StateError(
                f"the state was saved with {state['num_workers']} workers, the first "
                f"{state['first']} of them a batch ahead: go on with as many, or save where "
                "every worker has handed out as many batches"
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
        self._loader = None  # workers that live on do not know of it
