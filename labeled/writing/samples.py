"""Options of ``labeled.write`` that store a source as a file has it, but for a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labeled.formats.header import SourceHeader
from labeled.specs.casts import value_for
from labeled.writing.layouts import codec_of


def stored_options(header: SourceHeader, name: str, mend: Mapping[str, Any]) -> dict[str, Any]:
    """Return options that store a source alone.

    Parameters
    ----------
    header : SourceHeader
        How it is stored now.
    mend : mapping
        Options of :func:`labeled.repack`, which go before that.
    """
    if header.ragged is not None:
        return {"ragged": mend.get("ragged", "flat" if "values" in header.parts else "fuel")}

    def asked(option: str) -> Any:
        return value_for(name, mend.get(option, {}))

    if asked("layout") == "contiguous":
        return {"layout": "contiguous"}
    codec, level = codec_of(header.filters)
    if "compression" in mend:
        codec, level = asked("compression"), None
    chunks: Any = header.chunks if asked("chunks") is None else asked("chunks")
    out: dict[str, Any] = {"compression": codec, "level": level}
    if chunks == "auto" or chunks is None:
        return {**out, "layout": "auto" if chunks is None else "chunked"}
    return {**out, "chunks": chunks}
