"""Windows that slide over sequences."""

from __future__ import annotations

from typing import Any

from labeled.compat.errors import OldValueError
from labeled.compat.fuel.transformers import Transformer, check_no_request


class Window(Transformer):
    """Pairs of windows, source and target, that slide over each sequence by one step.

    Parameters
    ----------
    offset : int
        Where the target begins: counted from the beginning of the source if they overlap,
        else from its end.
    source_window, target_window : int
        Their lengths.
    overlapping : bool
    data_stream : AbstractDataStream
        Of examples, with one source.
    target_source : str
        The name of the second source.

    Raises
    ------
    OldValueError
        If the stream gives batches, or several sources.
    """

    def __init__(
        self,
        offset: int,
        source_window: int,
        target_window: int,
        overlapping: bool,
        data_stream: Any,
        target_source: str = "targets",
        **kwargs: Any,
    ) -> None:
        if not data_stream.produces_examples:
            raise OldValueError("windows slide over examples; the stream gives batches")
        if len(data_stream.sources) > 1:
            raise OldValueError(f"windows slide over one source, found {data_stream.sources}")
        super().__init__(data_stream, True, **kwargs)
        self.sources = (*data_stream.sources, target_source)
        self.source_window, self.target_window = source_window, target_window
        self._shift = offset if overlapping else source_window + offset
        self.sentence: Any = []
        self.index = 0

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:
        self.sentence = []
        return super().get_epoch_iterator(as_dict=as_dict)

    def get_data(self, request: Any = None) -> tuple[Any, Any]:
        check_no_request(self, request)
        reach = max(self.source_window, self._shift + self.target_window)
        while self.index + reach > len(self.sentence) or not len(self.sentence):
            (self.sentence,) = next(self.child_epoch_iterator)
            self.index = max(0, -self._shift)
        first, second = self.index, self.index + self._shift
        self.index += 1
        return (
            self.sentence[first : first + self.source_window],
            self.sentence[second : second + self.target_window],
        )


class NGrams(Window):
    """Stretches of `ngram_order` symbols, each with the symbol that follows."""

    def __init__(self, ngram_order: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(0, ngram_order, 1, False, *args, **kwargs)

    def get_data(self, request: Any = None) -> tuple[Any, Any]:
        source, target = super().get_data(request)
        return source, target[0]
