"""xarray's own tests of backends: files written by engine="h5netcdf", read by engine="labeled".

Those that cannot run are set to None in the class, each with the reason. Besides, xarray itself
skips what needs netCDF4, cftime or iris.
"""

from __future__ import annotations

import contextlib
import warnings

import pytest
import xarray as xr

# They turn an option of xarray on, for all tests of the process, and warn of missing packages.
with xr.set_options(warn_for_unclosed_files=False), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("xarray.tests", reason="this xarray is installed without its tests")
    from xarray.tests import test_backends as suite


@pytest.fixture(params=[True, False])
def use_dask(request):
    return request.param


@pytest.fixture(params=["s", "ms", "us", "ns"])
def time_unit(request):
    return request.param


class TestEngine(suite.NetCDF4Base):
    engine = "h5netcdf"  # for what is written

    @contextlib.contextmanager
    def open(self, path, **kwargs):
        with xr.open_dataset(path, engine="labeled", **kwargs) as ds:
            yield ds

    def test_byte_attrs(self, byte_attrs_dataset):
        """As in xarray's tests of h5netcdf, which refuses to write these."""
        with pytest.raises(ValueError, match=byte_attrs_dataset["h5netcdf_error"]):
            super().test_byte_attrs(byte_attrs_dataset)

    # through a store that writes, which this engine does not have
    test_write_store = None

    # asynchronous reading, which neither this engine nor h5netcdf has
    test_load_async = None

    # files written by the package netCDF4
    test_open_group = None
    test_open_subgroup = None
    test_roundtrip_character_array = None
    test_open_encodings = None
    test_dump_and_open_encodings = None
    test_mask_and_scale = None
    test_0dimensional_variable = None
    test_read_variable_len_strings = None

    # groups that are not opened: in this engine they are parts of the names of sources
    test_child_group_with_inconsistent_dimensions = None

    # a file of single values alone, where nothing could count examples
    test_roundtrip_coordinates_with_space = None

    # the attribute `coordinates` of the file itself, which is read but not handed on
    test_coordinates_encoding = None
