"""Lines of text files as lists of numbers, by words or by characters."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from labeled.compat.errors import OldKeyError, OldValueError
from labeled.compat.fuel.datasets.base import Dataset


class TextLines:
    """The lines of some files, one after another; can be pickled halfway."""

    def __init__(self, files: Iterable[str], encoding: str | None) -> None:
        self.files, self.encoding = list(files), encoding
        self.read_lines = 0
        self._file: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    def __iter__(self) -> TextLines:
        return self

    def __next__(self) -> str:
        while self.files:
            if self._file is None:
                self._file = self._open(self.files[0])
            for line in self._file:
                self.read_lines += 1
                return str(line)
            self.close()
            self.files, self.read_lines = self.files[1:], 0
        raise StopIteration

    def close(self) -> None:
        """Close the file; going on opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        self.close()  # old code drops iterators halfway, and leaves files to be collected

    def _open(self, path: str) -> Any:
        opener: Callable[..., Any] = gzip.open if str(path).endswith(".gz") else open
        file = opener(path, "rt", encoding=self.encoding)
        for _ in range(self.read_lines):
            file.readline()
        return file


class TextFile(Dataset):
    """Lines as lists of numbers: source ``features``, one example a line.

    Parameters
    ----------
    files : list of paths
        Those ending in ``.gz`` are uncompressed.
    dictionary : dict of str to int
        A word whose number is None counts as unknown.
    bos_token, eos_token : str or None
        What begins and ends each line; None or an empty text for nothing.
    unk_token : str or None
        What stands for words that are not in the dictionary; None makes them an error.
    level : {"word", "character"}
    preprocess : callable, optional
        Applied to each line.
    encoding : str, optional

    Raises
    ------
    OldValueError
        If a token is not in the dictionary, or `level` is something else.
    """

    provides_sources = ("features",)
    example_iteration_scheme: Any = None

    def __init__(
        self,
        files: Iterable[str],
        dictionary: Mapping[str, int],
        bos_token: str | None = "<S>",
        eos_token: str | None = "</S>",
        unk_token: str | None = "<UNK>",
        level: str = "word",
        preprocess: Callable[[str], str] | None = None,
        encoding: str | None = None,
    ) -> None:
        for token in (bos_token, eos_token, unk_token):
            if token is not None and token not in dictionary:
                raise OldValueError(
                    f"token {token!r} is not in the dictionary; add it, or pass None"
                )
        if level not in ("word", "character"):
            raise OldValueError(f"level is 'word' or 'character', found {level!r}")
        super().__init__()
        self.files, self.dictionary = list(files), dictionary
        self.bos_token, self.eos_token, self.unk_token = bos_token, eos_token, unk_token
        self.level, self.preprocess, self.encoding = level, preprocess, encoding

    def open(self) -> TextLines:
        """Return the lines; each file is tried first.

        Raises
        ------
        OSError
            If one cannot be opened.
        """
        for path in self.files:
            open(path, "rb").close()
        return TextLines(self.files, self.encoding)

    def close(self, state: Any) -> None:
        """Close the file that is being read, if there is one."""
        if state is not None:
            state.close()

    def get_data(self, state: Any = None, request: Any = None) -> tuple[list[int]]:
        """Return the next line.

        Raises
        ------
        KeyError
            If a word is not in the dictionary, and there is no token for that.
        """
        if request is not None:
            raise OldValueError("lines come in order: give the state of open(), and no request")
        line = next(state)
        if self.preprocess is not None:
            line = self.preprocess(line)
        symbols = line.split() if self.level == "word" else list(line.strip())
        begin = [self.dictionary[self.bos_token]] if self.bos_token else []
        end = [self.dictionary[self.eos_token]] if self.eos_token else []
        return ([*begin, *map(self._number, symbols), *end],)

    def _number(self, symbol: str) -> int:
        number = self.dictionary.get(symbol)
        if number is not None:
            return number
        if self.unk_token is None:
            raise OldKeyError(f"{symbol!r} is not in the dictionary; add it, or give unk_token=")
        return self.dictionary[self.unk_token]
