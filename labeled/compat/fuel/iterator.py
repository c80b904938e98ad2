"""One epoch of a stream, item by item."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class DataIterator:
    """Asks a stream for data, once a request, or until the stream ends.

    Parameters
    ----------
    data_stream : AbstractDataStream
    request_iterator : iterator, optional
    as_dict : bool
        Hand out dicts by source in the place of tuples.
    """

    def __init__(
        self,
        data_stream: Any,
        request_iterator: Iterator[Any] | None = None,
        as_dict: bool = False,
    ) -> None:
        self.data_stream = data_stream
        self.request_iterator = request_iterator
        self.as_dict = as_dict

    def __iter__(self) -> DataIterator:
        return self

    def __next__(self) -> Any:
        if self.request_iterator is None:
            data = self.data_stream.get_data()
        else:
            data = self.data_stream.get_data(next(self.request_iterator))
        if self.as_dict:
            return dict(zip(self.data_stream.sources, data, strict=False))
        return data
