"""From an augmented picture to the numbers that the old image iterators handed out.

Mirroring, mean, contrast, illumination, scale and standard deviation, in the order of float32
operations that each iterator had; planes R, G, B (, A). Three families differ:

* ``"seed"`` and ``"0.9.5"``: contrast and illumination count only where a mean above zero or a
  mean image is set; means by channel win over the mean image.
* ``"1.9.1 v1"``: they always count; the mean image wins.
* ``"1.9.1"``: likewise, with the factors multiplied beforehand; output in
  bytes keeps raw values.

The order of draws differs too, so a picture's numbers are drawn here as well, from whichever
`Twister` the iterator hands in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet.opencv import Picture
from labeled.compat.mxnet.parameters import PictureParameters, Rules
from labeled.compat.mxnet.twister import F32, Twister
from labeled.errors import AugmentError

FloatArray = npt.NDArray[np.float32]


class Drawn(NamedTuple):
    """What is drawn for one picture."""

    mirrored: bool
    contrast: np.float32
    illumination: np.float32


@dataclass(frozen=True, eq=False)
class Output:
    """The last step of one iterator.

    Parameters
    ----------
    rules : {"seed", "0.9.5", "1.9.1 v1", "1.9.1"}
        Whose rules.
    p : PictureParameters
        Those from `mirror` on count here, with their old meaning.
    dtype : {"float32", "uint8", "int8"}
        The small ones with rules "1.9.1" only: raw values, and the rounded mean subtracted.
    mean_img : float32 array (channels, height, width), optional
        The mean image itself; the iterators load or compute it.

    Examples
    --------
    >>> picture = np.full((1, 2, 3), 100, np.uint8)
    >>> asked = PictureParameters(mean_r=90, scale=0.5)
    >>> Output(p=asked)(picture, Twister(111))[:, 0, 0].tolist()
    [5.0, 50.0, 50.0]
    """

    rules: Rules = "1.9.1"
    p: PictureParameters = field(default_factory=PictureParameters)
    dtype: str = "float32"
    mean_img: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "uint8", "int8"):
            raise AugmentError(f"dtype={self.dtype!r} must be 'float32', 'uint8' or 'int8'")

    @property
    def newest(self) -> bool:
        """Whether these are the rules of ``ImageRecordIter`` in version 1.9.1."""
        return self.rules == "1.9.1"

    def __call__(self, picture: Picture, draws: Twister) -> npt.NDArray[Any]:
        """Return a picture (height, width, channels) as planes (channels, height, width)."""
        return self.planes(picture, self.draw(draws))

    def draw(self, draws: Twister) -> Drawn:
        """Draw for one picture, in the order of the version."""
        if self.newest:
            mirrored = self._coin(draws)
            if self.dtype == "uint8":
                return Drawn(mirrored, F32(1), F32(0))
            return Drawn(mirrored, *self._light(draws))
        contrast, illumination = self._light(draws)
        return Drawn(self._coin(draws), contrast, illumination)

    def planes(self, picture: Picture, drawn: Drawn) -> npt.NDArray[Any]:
        """Return the planes of a picture under given draws; a new array."""
        values = picture.transpose(2, 0, 1)
        if self.mean_img is not None and self.mean_img.shape != values.shape:
            raise AugmentError(
                f"the mean image has shape {self.mean_img.shape}, pictures have {values.shape}; "
                "let the iterator compute another one, or load one of this data_shape"
            )
        out = self._normalised(values, drawn)
        return np.ascontiguousarray(out[:, :, ::-1] if drawn.mirrored else out)

    def _coin(self, draws: Twister) -> bool:
        tossed = self.p.rand_mirror and draws.coin()
        return tossed or self.p.mirror

    def _light(self, draws: Twister) -> tuple[np.float32, np.float32]:
        contrast, illumination = (
            F32(self.p.max_random_contrast),
            F32(self.p.max_random_illumination),
        )
        factor = draws.unit() * contrast * F32(2) - contrast + F32(1)
        return factor, draws.unit() * illumination * F32(2) - illumination

    def _normalised(self, values: npt.NDArray[np.uint8], drawn: Drawn) -> npt.NDArray[Any]:
        _, contrast, illumination = drawn
        scale, std = F32(self.p.scale), self._stds[: len(values)]
        if self.dtype == "uint8":
            return values
        if self.dtype == "int8":
            mean = self._mean(len(values))
            whole = np.trunc(mean + np.copysign(F32(0.5), mean))  # half away from zero
            return np.clip(values.astype(np.float32) - whole, -128, 127).astype(np.int8)
        if self.newest:
            centred = values.astype(np.float32) - self._mean(len(values))
            scaled: FloatArray = centred * (contrast * scale / std) + illumination * scale / std
            return scaled
        if self.rules == "1.9.1 v1":
            centred = values.astype(np.float32) - self._mean(len(values))
            return (centred * contrast + illumination) * scale / std
        if not self._has_means and self.mean_img is None:
            return values.astype(np.float32) * scale
        centred = values.astype(np.float32) - self._mean(len(values))
        return (centred * contrast + illumination) * scale

    def _mean(self, n_channels: int) -> FloatArray:
        """Return what is subtracted, with lengths that go with (channels, height, width)."""
        channels_win = self.rules in ("seed", "0.9.5") and self._has_means
        if self.mean_img is not None and not channels_win:
            return self.mean_img
        return self._means[:n_channels]

    @property
    def _has_means(self) -> bool:
        return bool((self._means > 0).any())

    @cached_property
    def _means(self) -> FloatArray:
        return _column(self.p.mean_r, self.p.mean_g, self.p.mean_b, self.p.mean_a)

    @cached_property
    def _stds(self) -> FloatArray:
        return _column(self.p.std_r, self.p.std_g, self.p.std_b, self.p.std_a)


def mean_of_outputs(outputs: Iterable[FloatArray]) -> FloatArray:
    """Return the mean image that the old iterators made of one pass: summed up in float32.

    Parameters
    ----------
    outputs : iterable of float32 arrays (channels, height, width)
        What came out of `Output` without a mean image, crops, mirrors and scale included.

    Examples
    --------
    >>> mean_of_outputs([np.zeros((1, 1, 2), np.float32), np.ones((1, 1, 2), np.float32)]).tolist()
    [[[0.5, 0.5]]]
    """
    total, count = None, 0
    for output in outputs:
        total = output.astype(np.float32) if total is None else total + output
        count += 1
    if total is None:
        raise AugmentError("no picture came out, so there is no mean image; check path and part")
    return total * (F32(1) / F32(count))


def _column(*values: float) -> FloatArray:
    return np.array(values, np.float32).reshape(-1, 1, 1)
