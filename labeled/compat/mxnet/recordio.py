"""Record files by their old names and rules: ``MXRecordIO``, ``pack``, ``unpack`` and others.

What differs from the native :mod:`labeled.formats.recordio`: files are read one record after
another by one handle; a writer shows its file at once and not only when it is complete;
pickling closes the file, and unpickling opens it again at the beginning (for a writer: empties
it); pictures are in the order blue, green, red.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable
from mmap import ACCESS_READ, mmap
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeled.errors import FileFormatError, LabeledError
from labeled.formats.bytesource import stamp_of
from labeled.formats.pictures import opencv
from labeled.formats.recordio import records


class ForkError(LabeledError, RuntimeError):
    """A record file was used in another process than the one that opened it."""


class IRHeader(NamedTuple):
    """What stands before a picture: how many labels, the label or labels, two ids."""

    flag: int
    label: Any
    id: int
    id2: int


class MXRecordIO:
    """Reads or writes records one after another.

    Parameters
    ----------
    uri : str
    flag : {"r", "w"}
        Read, or write (which empties the file).

    Raises
    ------
    ValueError
        If `flag` is neither.
    FileFormatError
        If there is no such file.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "x.rec")
    >>> record = MXRecordIO(path, "w")
    >>> for text in (b"one", b"two"):
    ...     record.write(text)
    >>> record.close()
    >>> record = MXRecordIO(path, "r")
    >>> record.read(), record.read(), record.read()
    (b'one', b'two', None)
    >>> record.close()
    """

    def __init__(self, uri: str, flag: str) -> None:
        self.uri, self.flag = os.fspath(uri), flag
        self.pid: int | None = None
        self.is_open = False
        self.open()

    def open(self) -> None:
        """Open the file, at its beginning."""
        if self.flag not in ("r", "w"):
            raise ValueError(f"Invalid flag {self.flag}")
        self.writable = self.flag == "w"
        self._file: Any = _opened(self.uri.removeprefix("file://"), f"{self.flag}b")
        self._stored = b"" if self.writable else _mapped(self._file)
        self._at, self._ended = 0, False
        self.pid, self.is_open = os.getpid(), True

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        if self.is_open:
            self._file.close()
            self._stored, self.is_open, self.pid = b"", False, None

    def reset(self) -> None:
        """Go to the beginning; a file that is written is emptied."""
        self.close()
        self.open()

    def __del__(self) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        was_open = self.is_open
        self.close()
        return {**self.__dict__, "_file": None, "is_open": was_open}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        was_open, self.is_open = self.is_open, False
        if was_open:
            self.open()

    def write(self, buf: bytes) -> None:
        """Append a record."""
        self._check(writable=True)
        try:
            self._file.write(records.frame(buf))
        except records.FramingError as fault:
            raise FileFormatError(f"{self.uri!r}: {fault}; write shorter records") from None

    def read(self) -> bytes | None:
        """Return the next record; None at the end, and from then on until :meth:`reset`.

        Raises
        ------
        FileFormatError
            If something is not a record.
        """
        self._check(writable=False)
        self._ended = self._ended or self._at >= len(self._stored)
        if self._ended:
            return None
        try:
            payload, self._at = records.unframe(self._stored, self._at)
        except records.FramingError as fault:
            raise FileFormatError(f"Invalid RecordIO File {self.uri!r}: {fault}") from None
        return bytes(payload)

    def _check(self, *, writable: bool, reopens: bool = False) -> None:
        """Refuse what the file is not open for, and a handle that came through a fork."""
        assert self.writable == writable, f"the file is open with flag {self.flag!r}"
        if not self.is_open:
            raise FileFormatError(f"{self.uri!r} is closed; reset() opens it again")
        if self.pid != os.getpid():
            if not reopens:
                raise ForkError("Forbidden operation in multiple processes")
            self.reset()


class MXIndexedRecordIO(MXRecordIO):
    """Reads records by key, or writes them with keys, by the offsets in an ``.idx``.

    Parameters
    ----------
    idx_path : str
    uri : str
    flag : {"r", "w"}
    key_type : callable
        Makes a key of its text.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "x")
    >>> record = MXIndexedRecordIO(path + ".idx", path + ".rec", "w")
    >>> record.write_idx(7, b"seven")
    >>> record.write_idx(3, b"three")
    >>> record.close()
    >>> record = MXIndexedRecordIO(path + ".idx", path + ".rec", "r")
    >>> record.keys, record.read_idx(3), record.read_idx(7)
    ([7, 3], b'three', b'seven')
    >>> record.close()
    """

    def __init__(
        self, idx_path: str, uri: str, flag: str, key_type: Callable[[Any], Any] = int
    ) -> None:
        self.idx_path = os.fspath(idx_path)
        self.idx: dict[Any, int] = {}
        self.keys: list[Any] = []
        self.key_type = key_type
        super().__init__(uri, flag)

    def open(self) -> None:
        """Open both files; reads the index."""
        super().open()
        self.idx, self.keys = {}, []
        self._index: Any = _opened(self.idx_path, self.flag)
        if self.writable:
            return
        for number, line in enumerate(self._index, 1):
            try:
                fields = line.strip().split("\t")
                key, offset = self.key_type(fields[0]), int(fields[1])
                if not 0 <= offset < 1 << 63:
                    raise ValueError(offset)
            except (ValueError, IndexError):
                wrong = f"{line!r:.60}, is not a key, a tab and an offset; write it by rec2idx"
                raise FileFormatError(f"line {number} of {self.idx_path!r}, {wrong}") from None
            self.idx[key] = offset
            self.keys.append(key)

    def close(self) -> None:
        """Close both files."""
        if self.is_open:
            self._index.close()
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_index": None}

    def seek(self, idx: Any) -> None:
        """Go to the record of a key; after the end was read it does not help, as of old.

        Raises
        ------
        KeyError
            If the index has no such key.
        """
        self._check(writable=False, reopens=True)
        self._at = self.idx[idx]

    def tell(self) -> int:
        """Return the offset at which the next record will be written."""
        self._check(writable=True)
        return int(self._file.tell())

    def read_idx(self, idx: Any) -> bytes | None:
        """Return the record of a key."""
        self.seek(idx)
        return self.read()

    def write_idx(self, idx: Any, buf: bytes) -> None:
        """Append a record under a key."""
        key, offset = self.key_type(idx), self.tell()
        self.write(buf)
        self._index.write(f"{key}\t{offset}\n")
        self.idx[key] = offset
        self.keys.append(key)


def _opened(path: str, mode: str) -> Any:
    try:
        return open(path, mode, errors=None if "b" in mode else "surrogateescape")
    except OSError as error:
        raise FileFormatError(f"cannot open {path!r}: {error.strerror}") from error


def _mapped(file: Any) -> Any:
    n_bytes = os.fstat(file.fileno()).st_size
    return memoryview(mmap(file.fileno(), n_bytes, access=ACCESS_READ)) if n_bytes else b""


def pack(header: IRHeader, s: bytes) -> bytes:
    """Put a header before bytes.

    A number as label goes into the header; anything else becomes float32 values behind it.
    The flag that the header came with means nothing.

    Examples
    --------
    >>> one, rest = unpack(pack(IRHeader(0, [4.0, 0.5], 9, 0), b"bytes"))
    >>> one.flag, one.label.tolist(), one.id, rest
    (2, [4.0, 0.5], 9, b'bytes')
    """
    header = IRHeader(*header)
    with np.errstate(over="ignore"):  # becomes infinite
        labels = np.asarray(header.label, dtype=np.float32)
    if isinstance(header.label, numbers.Number):
        return records.HEADER.pack(*header._replace(flag=0, label=labels.item())) + s
    return records.HEADER.pack(*header._replace(flag=labels.size, label=0)) + labels.tobytes() + s


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """Take a record apart into its header, with all labels, and the bytes behind it.

    Raises
    ------
    FileFormatError
        If it is shorter than its header says.
    """
    try:
        one = records.unpack(s)
    except records.HeaderError as fault:
        raise FileFormatError(f"a record has no header of labels and ids: {fault}") from None
    header = IRHeader(*records.HEADER.unpack_from(s))
    return header._replace(label=one.labels) if header.flag else header, bytes(one.payload)


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, npt.NDArray[Any]]:
    """Take a record apart and decode its picture: blue, green, red; `iscolor` is OpenCV's flag."""
    header, encoded = unpack(s)
    return header, opencv().imdecode(np.frombuffer(encoded, np.uint8), iscolor)


def pack_img(
    header: IRHeader, img: npt.NDArray[Any], quality: int = 95, img_fmt: str = ".jpg"
) -> bytes:
    """Encode a picture (blue, green, red) and put a header before it.

    `quality` is that of JPEG, 1 to 100, or how hard PNG is compressed, 1 to 9.
    """
    cv2 = opencv()
    jpeg, png = [cv2.IMWRITE_JPEG_QUALITY, quality], [cv2.IMWRITE_PNG_COMPRESSION, quality]
    options = {".JPG": jpeg, ".JPEG": jpeg, ".PNG": png}.get(img_fmt.upper())
    done, encoded = cv2.imencode(img_fmt, img, options)
    assert done, "failed to encode image"
    return pack(header, encoded.tobytes())


def rec2idx(uri: str, idx_path: str) -> None:
    """Write the index of a record file, with keys 0, 1, 2, ..."""
    with open(idx_path, "w", encoding="utf-8") as out:
        for number, offset in enumerate(records.offsets_of(stamp_of(uri))[:-1].tolist()):
            out.write(f"{number}\t{offset}\n")
