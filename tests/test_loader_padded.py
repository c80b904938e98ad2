"""Ragged sources in specs: padded to the size of the space, with their masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.errors import SpecsError
from labeled.spaces import CompositeSpace, Conv2DSpace, IndexSpace, NullSpace, VectorSpace

RNG = np.random.default_rng(5)
SIZES = [(int(h), int(w)) for h, w in RNG.integers(1, 6, (20, 2))]
IMAGES = [np.arange(1, 1 + 2 * h * w, dtype="u1").reshape(2, h, w) for h, w in SIZES]
WORDS = [RNG.integers(0, 9, n) for n in RNG.integers(0, 7, 20)]
DIMS = {"images": ("batch", "channel", "height", "width"), "words": ("batch", "time")}


@pytest.fixture(scope="module", params=["flat", "fuel"])
def dataset(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("padded") / "x.h5"
    sources = {"images": IMAGES, "words": WORDS, "y": np.arange(20)}
    return labeled.open_dataset(labeled.write(path, sources, dims=DIMS, ragged=request.param))


def dense(row: int, shape: tuple[int, ...]) -> tuple[Any, Any]:
    image = IMAGES[row]
    out, inside = np.zeros((image.shape[0], *shape), "u1"), np.zeros((image.shape[0], *shape), bool)
    place = tuple(map(slice, image.shape))
    out[place], inside[place] = image, True
    return out, inside


@given(
    st.permutations(["b", "c", 0, 1]),
    st.integers(5, 8),
    st.integers(5, 8),
    st.sampled_from([False, "window", "full"]),
)
def test_images_are_padded_to_their_space(dataset, axes, height, width, shuffle):
    space = Conv2DSpace((height, width), num_channels=2, axes=tuple(axes))
    specs = (CompositeSpace((space, space, NullSpace())), ("images", "images_mask", ""))
    loader = dataset.batches(6, specs=specs, shuffle=shuffle, seed=3, last="pad")
    for (images, masks, nothing), rows, count in loader.with_rows():
        assert nothing is None
        back = [axes.index(axis) for axis in ("b", "c", 0, 1)]
        images, masks = images.transpose(back), masks.transpose(back)
        assert images.flags.owndata or images.base is not None
        for image, mask, row in zip(images[:count], masks[:count], rows, strict=False):
            expected, inside = dense(int(row), (height, width))
            np.testing.assert_array_equal(image, expected)
            np.testing.assert_array_equal(mask, inside)
        assert not masks[count:].any()
        assert not images[count:].any()


def test_casts_and_scales_are_for_the_values_alone(dataset: Any) -> None:
    specs = (CompositeSpace((VectorSpace(8), VectorSpace(8), IndexSpace(20, 1))),)
    specs = (specs[0], ("words", "words_mask", "y"))
    loader = dataset.batches(20, specs=specs, dtype="float32", scale=0.5, pad_value=4)
    words, mask, y = next(iter(loader))
    assert words.dtype == mask.dtype == np.float32
    for row, word in enumerate(WORDS):
        np.testing.assert_array_equal(words[row, : len(word)], word / 2)
        assert (words[row, len(word) :] == 2).all()
        assert mask[row].tolist() == [1.0] * len(word) + [0.0] * (8 - len(word))
    assert y[:, 0].tolist() == list(range(20))


def test_padded_labels_stay_labels(dataset: Any) -> None:
    loader = dataset.batches(20, specs=(IndexSpace(9, 7), "words"))
    assert next(iter(loader)).shape == (20, 7)


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ((Conv2DSpace((4, 9), num_channels=2), "images"), r"row \d+: its 'height' has length 5"),
        ((Conv2DSpace((9, 9), num_channels=1), "images"), "row 0: its 'channel' has length 2"),
        ((VectorSpace(50), "images"), "no sizes for"),
        ((VectorSpace(3), "words"), "row .*: its 'time' has length"),
        (
            (CompositeSpace((VectorSpace(8), VectorSpace(9))), ("words", "words_mask")),
            "ask for one size",
        ),
        ((VectorSpace(8), "words_masks"), "'words_masks' is not a source"),
    ],
)
def test_what_does_not_fit_is_found_when_the_loader_is_made(
    dataset: Any, specs: Any, words: str
) -> None:
    with pytest.raises(SpecsError, match=words):
        dataset.batches(4, specs=specs)


def test_memory_counts_what_is_padded(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "x.h5", {"x": [np.ones(3), np.ones(1)] * 50})
    with pytest.raises(labeled.errors.LoaderError, match="too small"):
        labeled.open_dataset(path).batches(100, specs=(VectorSpace(1 << 16), "x"), memory="16 MiB")
