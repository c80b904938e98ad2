"""Arrays lie where NumPy says they do, however that is found out."""

from __future__ import annotations

import numpy as np
import pytest

from labeled.permute.addresses import address_of


def read_only() -> np.ndarray:
    array = np.arange(5)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((3, 4), "f4"),
        np.zeros((3, 4), ">f8")[1:],
        np.zeros(9, "u1")[3:],
        np.zeros((4, 6))[:, 2:],
        np.zeros(6)[::-1],
        np.zeros(0),
        np.zeros(3, "M8[s]"),
        np.zeros(3, "S5"),
        np.zeros(3, [("a", "i2"), ("b", "f8")]),
        np.zeros((), "c16"),
        read_only(),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}{array.strides}",
)
def test_the_address_is_numpys(array):
    assert address_of(array) == array.ctypes.data
