"""RecordIO as one format among others."""

from __future__ import annotations

from labeled.formats.format import Format, Head
from labeled.formats.recordio.engines import open_reader
from labeled.formats.recordio.examples import open_ragged
from labeled.formats.recordio.framing import MAGIC_BYTES
from labeled.formats.recordio.options import RecordOptions
from labeled.formats.recordio.scan import scan


def _recognises(head: Head) -> bool:
    return head.data.startswith(MAGIC_BYTES) and not head.packed


FORMAT = Format(
    name="recordio",
    title="RecordIO",
    suffixes=(".rec", ".recordio"),
    recognises=_recognises,
    scan=scan,
    open_reader=open_reader,
    kinds={
        "images": "pictures with labels and ids",
        "labelled": "bytes with labels and ids",
        "raw": "records of any bytes",
    },
    options=RecordOptions,
    open_ragged=open_ragged,
)
