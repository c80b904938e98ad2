"""Streams: a dataset and a scheme that asks it for data, epoch after epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from labeled.compat.errors import check, old
from labeled.compat.fuel.config_parser import ServerTimeoutError
from labeled.compat.fuel.schemes import IterationScheme
from labeled.compat.fuel.server import DEFAULT_PORT, MAX_BYTES, recv_arrays, zeromq
from labeled.compat.fuel.utils import kept

Labels = Mapping[str, Any]


class DataIterator(Iterator[Any]):
    """Asks a stream for data, once a request, or until the stream ends.

    Parameters
    ----------
    data_stream : AbstractDataStream
    request_iterator : iterator, optional
    as_dict : bool
        Hand out dicts by source in the place of tuples.
    """

    def __init__(
        self, data_stream: Any, request_iterator: Iterator[Any] | None = None, as_dict: bool = False
    ) -> None:
        self.data_stream = data_stream
        self.request_iterator = request_iterator
        self.as_dict = as_dict

    def __next__(self) -> Any:
        stream, requests = self.data_stream, self.request_iterator
        data = stream.get_data() if requests is None else stream.get_data(next(requests))
        return dict(zip(stream.sources, data, strict=False)) if self.as_dict else data


class AbstractDataStream(ABC):
    """What all streams have in common.

    Parameters
    ----------
    iteration_scheme : IterationScheme, optional
        What requests are made.
    axis_labels : dict, optional
        Source to tuple of axis names.

    Attributes
    ----------
    sources : tuple of str
    produces_examples : bool
        Single examples, not batches: what the scheme says, else what was assigned.
    """

    def __init__(
        self, iteration_scheme: IterationScheme | None = None, axis_labels: Labels | None = None
    ) -> None:
        self.iteration_scheme = iteration_scheme
        self.axis_labels = axis_labels

    sources = kept("sources", lambda self: self._default_sources())

    def _default_sources(self) -> Any:
        raise old(AttributeError, f"{type(self).__name__} has no sources")

    @property
    def produces_examples(self) -> bool:
        if self.iteration_scheme is not None:
            return self.iteration_scheme.requests_examples
        check(hasattr(self, "_produces_examples"), "without a scheme, assign produces_examples")
        return bool(self._produces_examples)

    @produces_examples.setter
    def produces_examples(self, value: bool) -> None:
        check(self.iteration_scheme is None, "the iteration scheme tells what is produced")
        self._produces_examples = value

    def _take_no_request(self, request: Any) -> None:
        """Raise ValueError if there is a request."""
        check(request is None, f"{type(self).__name__} takes no requests, found {request!r}")

    @abstractmethod
    def get_data(self, request: Any = None) -> Any:
        """Return the data of a request, a tuple by source."""

    @abstractmethod
    def reset(self) -> None:
        """Begin again from the start."""

    @abstractmethod
    def close(self) -> None:
        """Release what is open."""

    @abstractmethod
    def next_epoch(self) -> None:
        """Begin the next epoch."""

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:
        """Return the items of an epoch, as tuples or as dicts by source."""
        scheme = self.iteration_scheme
        requests = None if scheme is None else scheme.get_request_iterator()
        return DataIterator(self, requests, as_dict=as_dict)

    def iterate_epochs(self, as_dict: bool = False) -> Iterator[Any]:
        """Yield the iterators of epochs without end."""
        while True:
            yield self.get_epoch_iterator(as_dict=as_dict)


class DataStream(AbstractDataStream):
    """The data of a dataset as a scheme asks for it.

    Opens the dataset. Without a scheme examples are read one by one.

    Parameters
    ----------
    dataset : Dataset
    iteration_scheme : IterationScheme, optional
    axis_labels : dict, optional
        Those of the dataset if not given; streams of examples lose the label 'batch'.
    """

    def __init__(
        self,
        dataset: Any,
        iteration_scheme: IterationScheme | None = None,
        axis_labels: Labels | None = None,
    ) -> None:
        labels = dict(dataset.axis_labels or {}) or None if axis_labels is None else axis_labels
        super().__init__(iteration_scheme=iteration_scheme, axis_labels=labels)
        if iteration_scheme is None:
            self.produces_examples = True
        if self.produces_examples and labels:
            self.axis_labels = {
                source: names and tuple(name for name in names if name != "batch")
                for source, names in labels.items()
            }
        self.dataset, self.data_state, self._fresh_state = dataset, dataset.open(), True

    def _default_sources(self) -> Any:
        return self.dataset.sources

    @classmethod
    def default_stream(cls, dataset: Any, **kwargs: Any) -> Any:
        """Make a stream and put the dataset's default transformers behind it."""
        return dataset.apply_default_transformers(cls(dataset, **kwargs))

    def get_data(self, request: Any = None) -> Any:
        return self.dataset.get_data(self.data_state, request)

    def close(self) -> None:
        self.data_state = self.dataset.close(self.data_state)

    def reset(self) -> None:
        self.data_state = self.dataset.reset(self.data_state)
        self._fresh_state = True

    def next_epoch(self) -> None:
        self.data_state = self.dataset.next_epoch(self.data_state)

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:
        """Return the items of an epoch; each after the first begins with `next_epoch`."""
        if not self._fresh_state:
            self.next_epoch()
        self._fresh_state = False
        return super().get_epoch_iterator(as_dict=as_dict)


class ServerDataStream(AbstractDataStream):
    """What :func:`labeled.compat.fuel.server.start_server` sends, from another process.

    Arrays arrive read-only. Clients of one server share the items of an epoch; one that joins
    later begins in the middle. There is no going back.

    Parameters
    ----------
    sources : tuple of str
    produces_examples : bool
    host : str
    port : int
    hwm : int
        Items held here at most.
    axis_labels : dict, optional
    timeout_s : float or None
        How long to wait for an item; None waits without end.
    """

    def __init__(
        self,
        sources: Any,
        produces_examples: bool,
        host: str = "localhost",
        port: int = DEFAULT_PORT,
        hwm: int = 10,
        axis_labels: Labels | None = None,
        timeout_s: float | None = 60.0,
    ) -> None:
        super().__init__(axis_labels=axis_labels)
        self.sources = sources
        self.produces_examples = produces_examples
        self.host, self.port, self.hwm = host, port, hwm
        self.timeout_s = timeout_s
        self._socket: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_socket": None}

    def get_data(self, request: Any = None) -> Any:
        """Wait for the next item.

        Raises
        ------
        StopIteration
            If the epoch is over.
        ValueError
            If there is a request, or what arrives is not an item of arrays.
        ServerTimeoutError
            If no item arrives within `timeout_s`. The next call connects again.
        """
        self._take_no_request(request)
        if self._socket is None:
            self.connect()
        if not self._socket.poll(None if self.timeout_s is None else int(1000 * self.timeout_s)):
            self.close()
            wrong = f"the server at {self.host}:{self.port} has sent nothing for {self.timeout_s} s"
            hint = "see whether it runs, start it and read on, or give timeout_s= more time"
            raise ServerTimeoutError(f"{wrong}; {hint}")
        try:
            return tuple(recv_arrays(self._socket))
        except ValueError:
            self.close()
            raise

    def connect(self) -> None:
        """Connect to the server; reading does so by itself."""
        zmq = zeromq()
        self._socket = zmq.Context.instance().socket(zmq.PULL)
        self._socket.set_hwm(self.hwm)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_BYTES)
        self._socket.connect(f"tcp://{self.host}:{self.port}")

    def close(self) -> None:
        """Disconnect; what was received and not handed out is lost."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def next_epoch(self) -> None:
        """Do nothing: the server goes on by itself."""

    def reset(self) -> None:
        """Do nothing: a server cannot be sent back."""
