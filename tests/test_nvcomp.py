"""The door to nvCOMP: what is handed to its C functions, without a GPU; on one, what comes back.

A library of its name is built by a C compiler: it has the functions that the door calls, with
the types that nvCOMP's headers give them, notes what it was handed, and copies bytes.
"""

from __future__ import annotations

import ctypes
import importlib
import shutil
import subprocess
import types
import zlib

import numpy as np
import pytest

from labeled import device
from labeled.device import Frames, HostDecoder, nvcomp
from labeled.device.decoding import REFUSED
from labeled.errors import LoaderError, MissingExtraError

COMPILER = shutil.which("cc")
LIBRARY = r"""
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct { int backend, sort; char reserved[56]; } DeflateOptions;
typedef struct { uint32_t version, cudart; } Properties;

size_t noted[8];

int nvcompGetProperties(Properties* told) { told->version = 6100; told->cudart = 1; return 0; }

int nvcompBatchedDeflateDecompressGetTempSize(size_t n, size_t most, DeflateOptions options,
                                              size_t* temp, size_t total, void* stream) {
    if (options.backend || options.sort || stream || total != n * most) return 10;
    *temp = 1000 * n + most;
    return 0;
}

int nvcompBatchedDeflateDecompressAsync(const void* const* inputs, const size_t* sizes,
        const size_t* room, size_t* lengths, size_t n, void* const temp, size_t temp_bytes,
        void* const* outputs, DeflateOptions options, int* statuses, void* stream) {
    noted[0] = n; noted[1] = temp_bytes; noted[2] = (size_t)stream; noted[3] = (size_t)temp;
    noted[4] = options.backend;
    if (n == 0) return 10;  // as nvCOMP 6 does where its pointers are null
    if (n == 7) return 11;
    for (size_t k = 0; k < n; ++k) {
        const char* data = inputs[k];
        statuses[k] = data[0] == 'x' ? 12 : 0;
        lengths[k] = sizes[k] < room[k] ? sizes[k] : room[k];
        if (!statuses[k]) memcpy(outputs[k], data, lengths[k]);
    }
    return 0;
}
"""
STREAM = 0x1234


class There(np.ndarray):
    """An array of the host that tells its address as CuPy's do."""

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)


class Cupy(types.SimpleNamespace):
    """What the door asks of CuPy, on the host."""

    def __init__(self):
        self.made = []
        stream = types.SimpleNamespace(ptr=STREAM)
        self.cuda = types.SimpleNamespace(get_current_stream=lambda: stream)

    def asarray(self, host):
        return self.kept(np.array(host).view(There))

    def empty(self, shape, dtype):
        return self.kept(np.full(shape, 0x5A, dtype).view(There))

    def kept(self, array):
        self.made.append(array)
        return array

    where = staticmethod(np.where)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if COMPILER is None:
        pytest.skip("no C compiler to build a library in the place of nvCOMP")
    folder = tmp_path_factory.mktemp("nvcomp")
    (folder / "it.c").write_text(LIBRARY)
    built = str(folder / "it.so")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", built, str(folder / "it.c")], check=True)
    return ctypes.CDLL(built)


@pytest.fixture
def door(library, monkeypatch):
    monkeypatch.setattr(nvcomp, "cupy_module", Cupy)
    return nvcomp.NvcompDecoder(library)


def frames_of(*rows):
    return Frames(*np.array(rows, np.int64).T)


def test_frames_reach_the_library_and_come_back(door, library):
    packed = np.frombuffer(b"some bytes......xxxxx...........and others", np.uint8).view(There)
    out = np.zeros(40, np.uint8).view(There)
    frames = frames_of((0, 10, 20, 10), (16, 5, 10, 5), (32, 10, 0, 3))
    found = door.decode("deflate", packed, frames, out)
    assert found.tolist() == [10, REFUSED, 3]
    assert out.tobytes() == b"and" + bytes(17) + b"some bytes" + bytes(10)
    noted = (ctypes.c_size_t * 8).in_dll(library, "noted")
    assert list(noted)[:3] == [3, 3 * 1000 + 10, STREAM]
    assert noted[3] > 0
    assert noted[4] == 0


def test_no_frames_at_all_are_asked_for_nowhere(door):
    """Of a window whose chunks were never stored, say, or stored as they were."""
    nothing = np.empty(0, np.uint8).view(There)
    found = door.decode("deflate", nothing, Frames(*np.empty((4, 0), np.int64)), nothing)
    assert (found.shape, found.dtype) == ((0,), np.int64)


def test_a_name_a_size_and_what_is_not_decoded(door):
    assert door.name == "nvCOMP 6.1"
    assert door.temp_bytes("deflate", 3, 50) == 3050
    assert door.why_not("deflate", 1 << 20) is None
    assert "larger than what nvCOMP decodes" in door.why_not("zstd", 1 << 31)
    assert door.why_not("zstd", (1 << 31) - 1) is None
    assert door.why_not("blosc", 1) == "blosc is not decoded on a device"


def test_a_call_that_is_refused_is_told(door):
    out = np.zeros(99, np.uint8).view(There)
    frames = frames_of(*([(0, 1, k, 1)] for k in range(0)), *[(0, 1, k, 1) for k in range(7)])
    with pytest.raises(LoaderError, match="DecompressAsync refused with status 11; decode chunks"):
        door.decode("deflate", out, frames, out)


def test_without_the_package_the_extra_is_named():
    try:
        importlib.import_module("nvidia.libnvcomp")
    except ImportError:
        with pytest.raises(MissingExtraError, match=r"needs nvCOMP .*nvcomp-cu13"):
            nvcomp.nvcomp_decoder()
    else:
        pytest.skip("nvCOMP is installed here")


@pytest.fixture(scope="module")
def installed():
    pytest.importorskip("nvidia.libnvcomp", reason="nvCOMP is not installed")
    return nvcomp.nvcomp_decoder()


def test_what_nvcomp_answers_without_a_gpu(installed):
    """Structures and types are those of the library: it refuses, or ends the process, if not."""
    assert installed.name.startswith("nvCOMP ")
    for codec in nvcomp.NAMES:
        assert installed.temp_bytes(codec, 10, 1 << 20) >= 0
        ask = getattr(installed.library, f"nvcompBatched{nvcomp.NAMES[codec]}"
                      "DecompressGetRequiredAlignments")  # fmt: skip
        ask.argtypes = (nvcomp._Options, ctypes.c_void_p)
        found = (ctypes.c_size_t * 3)()
        assert ask(nvcomp._Options(), found) == 0
        assert 1 <= found[0] <= device.decoding.BLOCK_ALIGNED  # compressed frames
        assert 1 <= found[1] <= 4  # where they go
    assert installed.temp_bytes("zstd", 20, 1 << 20) > installed.temp_bytes("zstd", 2, 1 << 20)


@pytest.mark.parametrize("codec", nvcomp.NAMES)
def test_nvcomp_refuses_to_decode_nothing(installed, codec):
    """Which is why it is not asked to."""
    ask = getattr(installed.library, f"nvcompBatched{nvcomp.NAMES[codec]}DecompressAsync")
    address, size = ctypes.c_void_p, ctypes.c_size_t
    ask.argtypes = (*[address] * 4, size, address, size, address, nvcomp._Options, *[address] * 2)
    assert ask(*[None] * 4, 0, None, 0, None, nvcomp._Options(), None, None) != 0


@pytest.mark.gpu
@pytest.mark.parametrize("length", [1, 1000, 70_000, 3_000_000])
@pytest.mark.parametrize("codec", ["deflate", "zstd", "lz4"])
def test_frames_decode_on_a_gpu_as_on_the_host(installed, codec, length):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.cuda.is_available():
        pytest.skip("there is no GPU")
    rng = np.random.default_rng(length)
    made = [rng.integers(0, 1 << k, length).astype(np.uint8) for k in range(1, 9)]
    packed, frames = packed_frames(codec, made)
    there = cupy.zeros(length * len(made), np.uint8)
    here = np.zeros(length * len(made), np.uint8)
    found = installed.decode(codec, cupy.asarray(packed), frames, there)
    assert HostDecoder().decode(codec, packed, frames, here).tolist() == found.get().tolist()
    np.testing.assert_array_equal(there.get(), np.concatenate(made))
    np.testing.assert_array_equal(here, np.concatenate(made))


def packed_frames(codec, chunks):
    """Pack chunks with other libraries, each at a place that is aligned."""
    bodies = [PACK[codec](chunk.tobytes()) for chunk in chunks]
    room = [-(-len(body) // 16) * 16 for body in bodies]
    starts = np.cumsum([0, *room])
    packed = np.zeros(starts[-1], np.uint8)
    for start, body in zip(starts, bodies, strict=False):
        packed[start : start + len(body)] = np.frombuffer(body, np.uint8)
    lengths = np.array([len(chunk) for chunk in chunks])
    sizes = np.array([len(body) for body in bodies])
    return packed, Frames(starts[:-1], sizes, np.cumsum(lengths) - lengths, lengths)


def numcodecs(name):
    return importlib.import_module(f"numcodecs.{name}")


PACK = {
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "zstd": lambda data: numcodecs("zstd").compress(data, 3),
    "lz4": lambda data: numcodecs("lz4").compress(data)[4:],
}


@pytest.mark.parametrize("codec", ["deflate", "zstd", "lz4"])
def test_the_host_decodes_the_same_frames(codec):
    rng = np.random.default_rng(1)
    made = [rng.integers(0, 1 << k, 1000).astype(np.uint8) for k in range(1, 7)]
    packed, frames = packed_frames(codec, made)
    out = np.zeros(6000, np.uint8)
    assert (HostDecoder().decode(codec, packed, frames, out) == 1000).all()
    np.testing.assert_array_equal(out, np.concatenate(made))
    broken = packed.copy()
    broken[frames.starts[2] : frames.starts[2] + 8] = 0xFF
    found = HostDecoder().decode(codec, broken, frames, out)
    assert (found != frames.lengths).tolist() == [False, False, True, False, False, False]
