"""RecordIO framing and headers: what is written comes back, and damage is told."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from labeled.formats.recordio.framing import (
    MAGIC_BYTES,
    MAX_RECORD_BYTES,
    FramingError,
    HeaderError,
    frame,
    pack,
    padded,
    unframe,
    unpack,
)

REFERENCE = os.environ.get("LABELED_REFERENCE")
needs_reference = pytest.mark.skipif(
    REFERENCE is None, reason="LABELED_REFERENCE names no folder of genuine record files"
)

pieces = st.lists(st.one_of(st.binary(max_size=9), st.just(MAGIC_BYTES)), max_size=8)
payloads = pieces.map(b"".join)


def stored_by_hand(payload: bytes) -> bytes:
    """Frame a payload word by word, as the format is described."""
    parts, part = [], b""
    words = [payload[i : i + 4] for i in range(0, len(payload), 4)]
    for word in words:
        if word == MAGIC_BYTES:
            parts.append(part)
            part = b""
        else:
            part += word
    parts.append(part)
    kinds = [0] if len(parts) == 1 else [1, *[2] * (len(parts) - 2), 3]
    out = b""
    for kind, one in zip(kinds, parts, strict=True):
        out += MAGIC_BYTES + struct.pack("<I", kind << 29 | len(one)) + one
        out += b"\0" * (-len(one) % 4)
    return out


@given(payloads)
@example(b"")
@example(MAGIC_BYTES)
@example(b"abc" + MAGIC_BYTES)
@example(MAGIC_BYTES * 3 + b"q")
@example(MAGIC_BYTES[:2] + MAGIC_BYTES)
def test_any_payload_is_stored_as_described_and_comes_back(payload):
    stored = frame(payload)

    assert stored == stored_by_hand(payload)
    found, end = unframe(b"before.." + stored + b"behind", 8)
    assert bytes(found) == payload
    assert end == 8 + len(stored)


@given(payloads, st.data())
def test_a_record_that_is_cut_short_is_refused(payload, data):
    stored = frame(payload)
    cut = data.draw(st.integers(0, len(stored) - 1))

    with pytest.raises(FramingError):
        unframe(stored[:cut])


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (b"", "0 bytes are left"),
        (b"\x0a\x23\xd7", "3 bytes are left"),
        (b"JPEG" + bytes(8), "begins with 0x4745504a"),
        (MAGIC_BYTES + struct.pack("<I", 2 << 29), "a continuation"),
        (MAGIC_BYTES + struct.pack("<I", 7 << 29), "part of kind 7"),
        (MAGIC_BYTES + struct.pack("<I", MAX_RECORD_BYTES), "claims 536,870,911 bytes, but 0"),
        (frame(MAGIC_BYTES)[:8] + frame(b"x"), "part 1 is of kind 0"),
    ],
)
def test_what_is_no_record_is_reported(stored, words):
    with pytest.raises(FramingError, match=words):
        unframe(stored)


def test_a_payload_that_no_record_holds_is_refused_before_it_is_copied():
    long = memoryview(np.broadcast_to(np.uint8(0), MAX_RECORD_BYTES + 1))
    with pytest.raises(FramingError, match="too long"):
        frame(long)


labels = st.one_of(
    st.floats(width=32, allow_nan=False),
    st.lists(st.floats(width=32, allow_nan=False), max_size=5),
)
ids = st.integers(0, 2**64 - 1)


@given(payloads, labels, ids, ids)
def test_labels_and_ids_come_back_with_the_payload(payload, label, id, id2):
    found = unpack(pack(payload, label, id, id2))

    assert (found.id, found.id2, bytes(found.payload)) == (id, id2, payload)
    wanted = label if label != [] else 0.0  # no labels: the header's own, which is 0
    np.testing.assert_array_equal(found.labels, np.atleast_1d(np.float32(wanted)))
    assert found.labels.dtype == np.float32


def test_a_header_that_claims_more_labels_than_there_are_bytes():
    stored = struct.pack("<IfQQ", 1_000_000_000, 0, 1, 0) + bytes(8)
    with pytest.raises(HeaderError, match="claims 1,000,000,000 labels"):
        unpack(stored)
    with pytest.raises(HeaderError, match="23 bytes"):
        unpack(bytes(23))


@pytest.mark.parametrize(("label", "id"), [("cat", 0), (1, -1), (1, 2**64), ([1, "x"], 0)])
def test_labels_and_ids_that_no_header_holds(label, id):
    with pytest.raises(HeaderError, match="labels"):
        pack(b"", label, id)


@needs_reference
@pytest.mark.parametrize(
    "name", ["photos_single", "photos_multi", "digits250_png", "framing_magic"]
)
def test_genuine_files_read_and_written_again_are_the_same_bytes(name):
    assert REFERENCE is not None
    stored = (Path(REFERENCE) / "rec" / f"{name}.rec").read_bytes()

    at, again, offsets = 0, b"", []
    while at < len(stored):
        offsets.append(at)
        payload, at = unframe(stored, at)
        assert at % 4 == 0
        again += frame(payload)
        if name != "framing_magic":
            one = unpack(payload)
            label = one.labels if payload[:4] != bytes(4) else one.labels[0]
            assert pack(one.payload, label, one.id, one.id2) == bytes(payload)

    assert again == stored
    listed = (Path(REFERENCE) / "rec" / f"{name}.idx").read_text().split()
    assert listed[1::2] == list(map(str, offsets))


@needs_reference
def test_payloads_with_the_magic_word_are_those_that_were_written():
    assert REFERENCE is not None
    folder = Path(REFERENCE) / "rec"
    wanted = json.loads((folder / "framing_magic.payloads.json").read_text())
    stored, at = (folder / "framing_magic.rec").read_bytes(), 0
    for payload in map(bytes.fromhex, wanted):
        found, at = unframe(stored, at)
        assert bytes(found) == payload
    assert at == len(stored)


def test_padding_goes_to_whole_words():
    assert [padded(n) for n in range(6)] == [0, 4, 4, 4, 4, 8]
