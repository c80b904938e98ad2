"""One of several transforms, drawn for every picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labeled.device import astype
from labeled.errors import AugmentError
from labeled.transforms.base import PictureSize, PictureTransform, check_inner
from labeled.transforms.chances import Chances
from labeled.transforms.pictures import Array, Pictures, pictures_of


@dataclass(frozen=True)
class OneOf(PictureTransform):
    """Apply one of several transforms to each picture, each equally often.

    Parameters
    ----------
    transforms : sequence of transforms
        What a picture gets does not depend on which others are in its batch.

    Examples
    --------
    >>> from labeled.transforms import Affine
    >>> turn = OneOf([Affine(rotate=angle) for angle in (90, 180)])
    >>> image = np.arange(4).reshape(1, 2, 2)
    >>> {turn(image, seed=s, dims=("channel", "y", "x"))[0, 0, 0].item() for s in range(9)}
    {1, 3}
    """

    transforms: Sequence[PictureTransform]

    def __post_init__(self) -> None:
        object.__setattr__(self, "transforms", tuple(self.transforms))
        if not self.transforms or not all(isinstance(t, PictureTransform) for t in self.transforms):
            raise AugmentError(f"OneOf takes transforms to choose from; found {self.transforms!r}")
        check_inner(self.transforms)

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        chosen = chances.whole("which", np.full(len(pictures), len(self.transforms)))
        views = pictures.settled().views()
        dtype = self.dtype_after(pictures.dtype)  # the same whatever is drawn for the others
        made: list[Array] = list(views)
        for number, transform in enumerate(self.transforms):
            some = np.flatnonzero(chosen == number)
            if not len(some):
                continue
            own = replace(chances, rows=chances.rows[some]).within(number)
            changed = transform.change(pictures_of([views[i] for i in some]), own)
            for place, view in zip(some, changed.settled().views(), strict=True):
                made[place] = astype(view, dtype)
        return pictures_of(made) if made else pictures

    def common_size(self, before: PictureSize | None) -> PictureSize | None:
        first, *others = {transform.common_size(before) for transform in self.transforms}
        return None if others else first

    def largest_size(self, before: PictureSize) -> PictureSize:
        heights, widths = zip(*(one.largest_size(before) for one in self.transforms), strict=True)
        return max(heights), max(widths)

    def dtype_after(self, before: np.dtype[Any]) -> np.dtype[Any]:
        found: np.dtype[Any] = np.result_type(*(t.dtype_after(before) for t in self.transforms))
        return found
