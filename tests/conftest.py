"""Settings that every test shares."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
from collections import Counter
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, settings

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=40, **_COMMON)
settings.register_profile("ci", max_examples=60, derandomize=True, **_COMMON)
settings.register_profile("soak", max_examples=1000, **_COMMON)
_FOUND = Phase.explicit, Phase.generate  # the first failure is enough, the smallest takes long
settings.register_profile("mutants", max_examples=30, derandomize=True, phases=_FOUND, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "quick"))

# Hundreds of tests start a Python of their own: none of them should compile the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# They find the helpers beside this file, too.
folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, folders))

# What children of the server of forks begin with: it takes a second to import.
multiprocessing.set_forkserver_preload(
    [
        "labeled.compat.fuel.datasets",
        "labeled.compat.fuel.server",
        "labeled.cluster",
        "labeled.testing",
        "hdf5plugin",
    ]
)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in jobs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

_look_closely = np.testing.assert_array_equal


@wraps(_look_closely)
def assert_array_equal(actual: Any, desired: Any, *said: Any, **options: Any) -> None:
    """Pass what is equal after one look; NumPy's own looks for NaN first, and decides the rest."""
    plain = type(actual) is np.ndarray and type(desired) is np.ndarray and "strict" not in options
    alike = plain and actual.shape == desired.shape and actual.dtype == desired.dtype
    if alike and actual.dtype.kind in "biufcmMSU":
        with np.errstate(all="ignore"):
            if (actual == desired).all():
                return
    _look_closely(actual, desired, *said, **options)


np.testing.assert_array_equal = assert_array_equal

# Whoever collects a module called cupy there has it for CuPy; mutants.py needs cosmic-ray.
collect_ignore = ["stand_in", "mutants.py"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many tests of each area passed: the first word of a file, or a package."""
    named = re.compile(r"tests/test_([a-z0-9]+)|labeled/([a-z_0-9]+)")
    found = (named.match(report.nodeid) for report in terminalreporter.stats.get("passed", ()))
    areas = Counter(one[1] or f"{one[2]} (examples)" for one in found if one)
    words = ", ".join(f"{area} {n:,}" for area, n in areas.most_common())
    if areas:
        terminalreporter.write_line(f"passed, by area: {words}")
