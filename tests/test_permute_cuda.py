"""The CUDA kernel: run on this processor by a C++ compiler, and on a GPU where there is one."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import math
import mmap
import re
import shutil
import subprocess
import sys
from pathlib import Path

import array_api_strict as xp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labeled import permute

COMPILER = shutil.which("c++")

ON_THIS_PROCESSOR = """
#include <setjmp.h>
#include <ucontext.h>
#define floorf __builtin_floorf  // C++'s <math.h> takes longer than all the rest to compile
struct Index { unsigned x; };
static Index threadIdx, blockIdx;
#define __device__
#define __global__
#define __shared__ static
#define __restrict__
#define __grid_constant__
#define __launch_bounds__(n, least)
#define __align__(n) __attribute__((aligned(n)))
static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned chosen) {
    const unsigned long long both = (unsigned long long)high << 32 | low;
    unsigned made = 0;
    for (int n = 0; n < 4; ++n)
        made |= (unsigned)(both >> (chosen >> 4 * n & 7) * 8 & 255) << 8 * n;
    return made;
}
template <class One, class Two> static One min(One one, Two two) { return two < one ? two : one; }
// The threads of a block take turns: each goes on to where all wait for one another, or to its end.
static jmp_buf block, thread[THREADS];
static void __syncthreads() { if (!_setjmp(thread[threadIdx.x])) _longjmp(block, 1); }
"""
MANY_BLOCKS = """
static void *src, *dst, *picked, *table, *scale, *shift;
static bool began[THREADS], ended[THREADS];
static void one_thread() {
    for (;; ended[threadIdx.x] = true, __syncthreads()) {
#if FEW
        permute((char*)src, (FINAL*)dst, (Big*)picked, *(Table*)table, *(Factors*)scale);
#else
        permute((char*)src, (FINAL*)dst, (Big*)picked, *(Table*)table, (FINAL*)scale,
                (FINAL*)shift);
#endif
    }
}
static void go_on() {
    if (_setjmp(block)) return;
    if (began[threadIdx.x]) _longjmp(thread[threadIdx.x], 1);
    began[threadIdx.x] = true;
    static char stacks[THREADS][1 << 14];
    static ucontext_t begun;
    getcontext(&begun);
    begun.uc_stack.ss_sp = stacks[threadIdx.x], begun.uc_stack.ss_size = sizeof stacks[0];
    makecontext(&begun, one_thread, 0);
    setcontext(&begun);
}
extern "C" void run(long long n_blocks, void* s, void* d, void* p, void* t, void* a, void* b) {
    src = s, dst = d, picked = p, table = t, scale = a, shift = b;
    for (blockIdx.x = 0; blockIdx.x < (unsigned)n_blocks; ++blockIdx.x) {
        for (bool& one : ended) one = false;
        for (bool more = true; more;) {
            more = false;
            for (threadIdx.x = 0; threadIdx.x < THREADS; ++threadIdx.x)
                if (!ended[threadIdx.x]) go_on(), more = true;
        }
    }
}
"""
SHAPES = [(70, 3, 16, 20), (5, 4, 65, 66), (9, 1, 28, 28), (600, 700), (130, 3, 137)]
POISON = 0xA5


def address(array):
    return ctypes.c_void_p(getattr(array, "_values", array).ctypes.data)


def stand_in():
    """Return what stands for CuPy, with a place for the kernels that it is given."""
    path = Path(__file__).parent / "stand_in" / "cupy.py"
    made = importlib.util.module_from_spec(importlib.util.spec_from_file_location("cupy", path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupy", made)
        made.__spec__.loader.exec_module(made)
    made.codes, made.launched, made.tables, made.memory = {}, [], [], []
    return made


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """Return a stand-in for CuPy that compiles kernels for this processor."""
    if COMPILER is None:
        pytest.skip("no C++ compiler to run the kernel's source on this processor")
    folder, cupy = tmp_path_factory.mktemp("kernel"), stand_in()

    def build(code):
        name = folder / f"permute_{len(cupy.codes)}"
        defines, _, source = code.partition("\n\n")
        defines += "\n"
        name.with_suffix(".cpp").write_text(defines + ON_THIS_PROCESSOR + source + MANY_BLOCKS)
        flags = ["-O0", "-ffp-contract=off", "-shared", "-fPIC", "-Wall", "-Werror"]
        flags.append("-Wno-unknown-pragmas")
        flags += ["-nostdlib"] if sys.platform == "linux" else []  # this process has it already
        files = ["-o", str(name.with_suffix(".so")), str(name.with_suffix(".cpp"))]
        subprocess.run([COMPILER, *flags, *files], check=True)
        return ctypes.CDLL(str(name.with_suffix(".so"))).run

    class Module:
        def __init__(self, code, options):
            assert options == ("--fmad=false",)  # scale and shift are two rounded steps
            self.code = code
            if code not in cupy.codes:
                cupy.codes[code] = build(code)

        def get_function(self, name):
            assert name == "permute"
            return self.launch

        def launch(self, blocks, threads, args):
            # CuPy sends nothing of the host along but single items
            assert all(one.size == 1 for one in args if type(one) is np.ndarray)
            for one in args[:2]:  # a device reads items nowhere else
                places = math.gcd(one.data.ptr, *one.strides)
                assert places % one.dtype.itemsize == 0 or one.shape == (1,) * one.ndim
            cupy.launched.append((blocks[0], self.code))
            cupy.tables[:] = [args[3]]
            more = [None] * (6 - len(args))
            cupy.sent = 0 if more else sum(one.nbytes for one in args[4:])  # of factors
            cupy.codes[self.code](ctypes.c_longlong(blocks[0]), *map(address, args), *more)

    def empty(shape, dtype):
        """Return new memory in the middle of a larger one, all of it poison."""
        n = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = np.full(n + 512, POISON, np.uint8)
        cupy.memory.append((memory, n))
        return cupy.ndarray(memory[256 : 256 + n].view(dtype).reshape(shape))

    cupy.RawModule, cupy.empty = Module, empty
    return cupy


@pytest.fixture
def on_host(host, monkeypatch):
    """Copy an array by the kernel, and see that this writes its result and nothing else."""
    monkeypatch.setitem(sys.modules, "cupy", host)

    def check(src, axes, expected, rows=None, launches=1, **changes):
        host.memory.clear()
        host.launched.clear()
        there = host.ndarray(src)
        if rows is None:
            found = permute.copy(there, axes, **changes)
        else:
            found = permute.gather(there, rows, axes, **changes)
        assert launches is None or len(host.launched) == launches
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(host.asnumpy(found), expected)
        for memory, n in host.memory:
            assert (memory[:256] == POISON).all()
            assert (memory[256 + n :] == POISON).all()
        return host.launched

    return check


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("item", ["u1", "f2", "f4", "f8"])
def test_the_kernel_moves_items_as_numpy_does(on_host, shape, item):
    src = np.random.default_rng(0).integers(0, 256, shape).astype(item)
    for axes in itertools.permutations(range(len(shape))):
        on_host(src, axes, src.transpose(axes))
    broken = src[::-2, ..., ::3]
    back = tuple(reversed(range(len(shape))))
    on_host(broken, back, broken.transpose(back))


@pytest.mark.parametrize(("item", "width"), [("u1", 32), ("u1", 20), ("u1", 3), ("f4", 8)])
def test_short_runs_share_a_block(on_host, item, width):
    """Where the last axis stays, a run a block would leave most threads with nothing to do."""
    src = np.random.default_rng(0).integers(0, 256, (64, 3, 16, width)).astype(item)
    rows = np.random.default_rng(1).integers(0, 64, 50)
    for axes in [(0, 1, 2, 3), (0, 2, 1, 3), (2, 1, 0, 3)]:
        ((blocks, _),) = on_host(src, axes, src.transpose(axes))
        assert blocks <= 1 + src.nbytes // 1536
        on_host(src, axes, src[rows].transpose(axes), rows)


def test_one_item_and_one_axis(on_host):
    on_host(np.array(7, np.uint8), (), np.array(7, np.float32), dtype="f4")
    for item in ("u1", "f4"):
        line = np.arange(70_001).astype(item)
        on_host(line, (0,), line.astype("f8"), dtype="f8")
        on_host(line[::-3], (0,), line[::-3], launches=None)


@pytest.mark.parametrize("item", ["u2", "f4", "f8", "c8", "c16"])
def test_items_between_their_places_are_moved_there_first(on_host, item):
    """To a device these are an error after which it does nothing more for the process."""
    size = np.dtype(item).itemsize
    memory = np.random.default_rng(0).integers(0, 60, 5000 * size, np.uint8)
    rows = np.array([3, 0, -1])
    for start, step in itertools.product(range(0, size, max(1, size // 4)), (size, size + 1)):
        src = np.ndarray((6, 5, 7), item, memory, start, (35 * step, 7 * step, step))
        src = src[:, ::-1]
        launches = None if item == "c16" else 1  # CuPy's functions move those
        on_host(src, (2, 0, 1), src.transpose(2, 0, 1), launches=launches)
        on_host(src, (0, 2, 1), src[rows].transpose(0, 2, 1), rows, launches=launches)
        on_host(src[:0], (1, 0, 2), src[:0].transpose(1, 0, 2), launches=0)
    runs = np.ndarray((6, 8), "u2", memory, 1, (16, 2))
    on_host(runs, (1, 0), runs.T.astype("f4") + np.float32(1), dtype="f4", shift=1)
    one = np.ndarray((), "f4", memory, 1)
    on_host(one, (), one)


def far_apart(values):
    """Return values whose rows lie so far apart that places of items need 64 bits."""
    step = values.itemsize << 31
    no_reserve = 0x4000 if sys.platform == "linux" else 0  # older Pythons have no name for it
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", no_reserve)
    memory = mmap.mmap(-1, (len(values) - 1) * step + values.nbytes, flags=flags)
    src = np.ndarray(values.shape, values.dtype, memory, strides=(step, *values.strides[1:]))
    src[...] = values
    return src


def test_places_far_apart_take_64_bits(on_host):
    values = np.random.default_rng(0).integers(0, 256, (3, 3, 4, 5)).astype("u1")
    src = far_apart(values)
    rows = np.array([2, 0, 2])
    scaled = {"dtype": "f4", "scale": [[[1.5]], [[2]], [[3]]], "shift": 7}
    expected = values * np.float32([1.5, 2, 3]).reshape(3, 1, 1) + np.float32(7)
    for axes in itertools.permutations(range(4)):
        ((_, code),) = on_host(src, axes, values.transpose(axes))
        assert "#define INDEX unsigned long long\n" in code
        on_host(src, axes, values[rows].transpose(axes), rows)
        on_host(src, axes, expected.transpose(axes), **scaled)


@pytest.mark.parametrize("n", [1, 3, 64, 65])
def test_factors_of_the_host_are_the_same_few_or_many(on_host, n):
    src = np.random.default_rng(0).integers(0, 256, (5, n, 6, 7)).astype("u1")
    scale, shift = np.random.default_rng(1).uniform(0.1, 2, (2, n, 1, 1)).astype("f4")
    for axes in [(0, 1, 2, 3), (1, 2, 3, 0), (0, 2, 3, 1)]:
        both = {"dtype": "f4", "scale": scale.tolist(), "shift": shift.tolist()}
        expected = (src * scale + shift).transpose(axes)
        on_host(src, axes, expected, **both)
        one = {"dtype": "f4", "shift": shift.tolist()}
        expected = (src + shift).transpose(axes)
        on_host(src, axes, expected, **one)


@pytest.mark.parametrize(("shape", "factor", "sent"), [
    ((7, 20, 30, 3), (3,), {"FEW": 1, "PERIOD": 3}),
    ((40, 5, 30, 3), (40, 1, 1, 3), {"FEW": 0, "PERIOD": 3}),
    ((5, 6, 30, 7), (6, 1, 7), {"FEW": 1, "PERIOD": 7}),
    ((900, 63), (63,), {"FEW": 1, "PERIOD": 63}),
    ((900, 64), (64,), {"FEW": 1, "PERIOD": 1}),
])  # fmt: skip
@pytest.mark.parametrize("item", ["u1", "f4", "i4"])
def test_factors_of_channels_behind_are_sent_once(host, on_host, item, shape, factor, sent):
    src = np.random.default_rng(0).integers(0, 256, shape).astype(item)
    rows = np.random.default_rng(1).integers(0, len(src), len(src))
    final = "f8" if item == "i4" else "f4"
    scale = np.random.default_rng(2).uniform(0.1, 2, factor).astype(final)
    changes = {"dtype": final, "scale": scale, "shift": np.dtype(final).type(7)}
    expected = src.astype(final) * scale + changes["shift"]
    axes = range(len(shape))
    ((_, code),) = on_host(src, axes, expected, **changes)
    assert {f"#define {name} {value}" for name, value in sent.items()} <= set(code.split("\n"))
    assert host.sent == 2 * scale.nbytes * (not sent["FEW"])
    if len(factor) < len(shape):
        on_host(src, axes, expected[rows], rows, **changes)
    outside_in = np.asfortranarray(src)  # channels are not what lies together
    on_host(outside_in, axes, expected, **changes)


@pytest.mark.parametrize("item", ["u1", "u2"])
def test_small_items_move_as_words_where_they_lie_together(on_host, item):
    shape = (68, 3, 16, 20)
    src = np.random.default_rng(0).integers(0, 256, shape).astype(item)
    rows = np.random.default_rng(1).integers(0, 68, 64)
    ((_, code),) = on_host(src, (1, 2, 3, 0), src.transpose(1, 2, 3, 0))
    assert f"#define LOAD {4 // src.itemsize}\n" in code
    for axes in itertools.permutations(range(4)):
        on_host(src, axes, src.transpose(axes))
        on_host(src, axes, src[rows].transpose(axes), rows)
    for odd in (src[1:], src[:, :, :, 1:], src[:, :, :, ::2], src[..., :18]):
        for axes in ((1, 2, 3, 0), (3, 2, 1, 0), (0, 2, 3, 1)):
            on_host(odd, axes, odd.transpose(axes))


WAYS = [
    # shape; how much of its last axis is copied; order; items; shape of a scale; what is so
    ((4, 5000), 5000, (1, 0), "u1", None, "TURNED=4 WORDS=2 skew"),
    ((2, 9000), 8999, (1, 0), "u2", None, "TURNED=2 WORDS=4 skew rest fasts"),
    ((70, 20, 40), 40, (0, 2, 1), "u1", None, "TURNED=4 skew outers"),
    ((6, 37, 60), 58, (0, 2, 1), "u1", None, "TURNED=1 LOAD=4 joined rest outers"),
    ((330, 72), 71, (1, 0), "u1", None, "TURNED=1 LOAD=4 skew rest rows"),
    ((2, 700, 32), 32, (1, 0, 2), "u1", (700, 32), "VARIES=2 LOAD=4 runs rows"),
    ((700, 33), 33, (0, 1), "u1", (700, 33), "VARIES=2 WORDS=8 runs fasts"),
    ((3001, 3), 3, (1, 0), "u1", (3,), "VARIES=2 LOAD=4 in_one rows"),
    ((601, 3), 3, (1, 0), "u1", (601, 3), "VARIES=2 LOAD=4 in_one rows"),
    ((801, 6), 6, (1, 0), "i2", (801, 1), "VARIES=1 LOAD=2 in_one rows"),
    ((30, 3, 43), 43, (0, 2, 1), "f4", (30, 3, 43), "VARIES=2 joined outers"),
    ((5, 30, 300), 299, (0, 2, 1), "u1", (5, 30, 299), "VARIES=2 LOAD=4 rest fasts"),
]


def described(code, table):
    """Return what a launch says of a copy, by the names that the kernel's source has for it."""
    fields = code.partition("struct Table {")[2].partition("Axis axis")[0]
    names = re.findall(r"\w+(?=[,;])", re.sub("//.*", "", fields))
    numbers = np.frombuffer(table.tobytes(), "u8" if "INDEX unsigned long" in code else "u4")
    return dict(zip(names, map(int, numbers), strict=False))


@pytest.mark.parametrize(("shape", "width", "axes", "item", "factor", "so"), WAYS)
def test_each_way_of_a_tile(host, on_host, shape, width, axes, item, factor, so):
    """What is said of each copy is so: should tiles change, choose copies of which it is again."""
    src = np.random.default_rng(0).integers(0, 100, shape).astype(item)[..., :width]
    if factor is None:
        ((_, code),) = on_host(src, axes, src.transpose(axes))
    else:
        scale = np.random.default_rng(1).uniform(0.1, 2, factor).astype("f4")
        expected = (src.astype("f4") * scale).transpose(axes)
        ((_, code),) = on_host(src, axes, expected, dtype="f4", scale=scale)
    defined = dict(re.findall(r"^#define (\w+) (\d+)$", code, re.MULTILINE))
    table = described(code, host.tables[-1])
    found = {name for name in ("runs", "in_one", "joined", "skew") if table[name]}
    found |= {"rest"} if table["fasts"] % int(defined["LOAD"]) else set()
    found |= {"outers"} if table["tile_outers"] > 1 else set()
    found |= {name for name in ("fasts", "rows") if table[f"tile_{name}"] < table[name]}
    assert set(so.split()) <= found | {f"{name}={value}" for name, value in defined.items()}


@pytest.fixture(scope="module")
def nvrtc():
    """Return NVIDIA's compiler of kernels, which needs no device."""
    found = importlib.util.find_spec("nvidia")
    places = [] if found is None else map(Path, found.submodule_search_locations)
    libraries = sorted(name for place in places for name in place.glob("*/lib/libnvrtc.so.*"))
    if not libraries:
        pytest.skip("nvidia-cuda-nvrtc is not installed")
    for headers in libraries[0].parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(headers))  # looked for by name alone, so it has to be there
    return ctypes.CDLL(str(libraries[0]))


def log_of(nvrtc, code, architecture="sm_90"):
    """Return whether a kernel compiles for an architecture, and what the compiler says."""
    program = ctypes.c_void_p()
    made = nvrtc.nvrtcCreateProgram(ctypes.byref(program), code.encode(), b"k.cu", 0, None, None)
    assert made == 0
    options = [f"--gpu-architecture={architecture}", "--fmad=false"]
    texts = (ctypes.c_char_p * len(options))(*(text.encode() for text in options))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), texts)
    length = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(length))
    log = ctypes.create_string_buffer(length.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return failed == 0, log.value.decode()


@pytest.fixture
def noted(monkeypatch):
    """Return a stand-in for CuPy that notes the source of kernels, and runs none."""
    cupy = stand_in()
    monkeypatch.setitem(sys.modules, "cupy", cupy)

    class Module:
        def __init__(self, code, options):
            cupy.codes[code] = options

        def get_function(self, name):
            return lambda *args: None

    cupy.RawModule = Module
    return cupy


@pytest.mark.parametrize(("axes", "most"), [((1, 2, 3, 0), 12), ((0, 2, 3, 1), 4)])
def test_batches_of_any_size_share_a_few_programs(noted, axes, most):
    pictures = np.zeros((512, 3, 32, 32), np.uint8)
    for n in range(1, 513):
        permute.copy(noted.ndarray(pictures[:n]), axes, dtype="f4")
    assert len(noted.codes) <= most


def codes_asked_for(cupy):
    """Return the source of each kind of item, each kind of result, each pure move."""
    pairs = {("?", "f"), ("q", "f"), ("d", "d"), ("B", "f")}
    factors = [{}, {"scale": 2.0, "shift": 1.0}, {"scale": np.ones((3, 72, 1))}]
    asked = [(item, {"dtype": final, **more}) for item, final in pairs for more in factors]
    asked += [(item, {}) for item in ("B", "H", "f", "d", "F")]
    for (item, changes), far in itertools.product(asked, (False, True)):
        src = np.ones((3, 72, 8), item)
        src = far_apart(src) if far else src
        for axes in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
            permute.copy(cupy.ndarray(src), axes, **changes)
            permute.gather(cupy.ndarray(src), [0, 2, 0], axes, **changes)
    return list(cupy.codes)


def test_the_kernels_are_programs_for_a_device(nvrtc, noted):
    """`sm_90` stands for all."""
    codes = codes_asked_for(noted)
    assert len(codes) > 30
    for code in codes:
        assert log_of(nvrtc, code) == (True, ""), code[:600]
    compiled, log = log_of(nvrtc, codes[0].replace("blockIdx", "block_index"))
    assert not compiled
    assert "block_index" in log


@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
@pytest.mark.parametrize(("item", "final"), [("u1", "f4"), ("i1", "f4"), ("i4", "f8")])
def test_the_kernel_scales_as_numpy_does(on_host, shape, item, final):
    src = np.random.default_rng(0).integers(0, 256, shape).astype(item)
    compute = "f8" if final == "f8" else "f4"
    scale = np.random.default_rng(1).uniform(0.1, 2, (shape[1], 1, 1)).astype(compute)
    shift = np.random.default_rng(2).uniform(-9, 9, (shape[0], 1, 1, 1)).astype(compute)
    for axes in itertools.permutations(range(4)):
        expected = (src.astype(compute) * scale + shift).astype(final).transpose(axes)
        on_host(src, axes, expected, dtype=final, scale=scale, shift=shift)


def test_a_cast_alone_rounds_once(on_host):
    wide = np.array([2**53 + 1, -(2**62) - 1, 3, 70000], np.int64).reshape(2, 2)
    for final in ("f8", "f4"):
        on_host(wide, (1, 0), wide.T.astype(final), dtype=final)
    exact = np.array([[1.0 + 2**-11 + 2**-40, -0.0], [2.0, 65519.9]])
    on_host(exact, (1, 0), exact.T.astype("f4"), dtype="f4")
    on_host(exact, (1, 0), exact.T.astype("f2"), dtype="f2", launches=0)  # by CuPy's functions


@st.composite
def gathers(draw):
    """Draw an array, rows of it and an order of its axes."""
    shape = draw(st.lists(st.integers(1, 9), min_size=2, max_size=4))
    src = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 60000, shape).astype("u2")
    src = src[:: draw(st.sampled_from([1, -1, 2]))]
    rows = draw(st.lists(st.integers(-len(src), len(src) - 1), max_size=12))
    return src, np.array(rows, np.int64), draw(st.permutations(range(len(shape))))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(gathers())
def test_any_gather_is_the_same_on_every_way(on_host, drawn):
    src, rows, axes = drawn
    expected = src[rows].transpose(axes)
    np.testing.assert_array_equal(permute.gather(src, rows, axes), expected)
    strict = permute.gather(xp.asarray(src), rows, axes)
    np.testing.assert_array_equal(np.asarray(strict), expected)
    on_host(src, axes, expected, rows, launches=None)
    scale = np.arange(1, 1 + src.shape[1], dtype="f4").reshape((-1,) + (1,) * (src.ndim - 2))
    changes = {"dtype": "f4", "scale": scale, "shift": np.float32(1)}
    wanted = (src[rows].astype("f4") * scale + np.float32(1)).transpose(axes)
    np.testing.assert_array_equal(permute.gather(src, rows, axes, **changes), wanted)
    on_host(src, axes, wanted, rows, launches=None, **changes)
