"""Numba is imported for the sake of speed alone: once that pays, and never where it cannot."""

from __future__ import annotations

import importlib

import pytest

from labeled.permute import compiler


@pytest.fixture
def imports(monkeypatch):
    """A process in which numba is installed and not imported; what is imported from here on."""
    done: list[str] = []
    monkeypatch.delenv(compiler.SWITCH, raising=False)
    monkeypatch.setattr(compiler, "_moved_bytes", 0)
    monkeypatch.setattr(compiler, "installed", lambda: True)
    monkeypatch.setattr(compiler, "loaded", lambda: "numba" in done)
    monkeypatch.setattr(importlib, "import_module", done.append)
    return done


def test_numba_is_imported_once_that_pays(imports):
    assert not compiler.earned(compiler.PAID_BYTES // 2)
    assert not compiler.earned(compiler.PAID_BYTES - compiler.PAID_BYTES // 2)
    assert imports == []
    assert compiler.earned(1)
    assert compiler.earned(1)
    assert imports == ["numba"]


def test_it_is_asked_for_once_where_it_does_not_load(imports, monkeypatch):
    def fails(name):
        imports.append(name + " in vain")
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", fails)
    assert not compiler.earned(2 * compiler.PAID_BYTES)
    assert not compiler.earned(2 * compiler.PAID_BYTES)
    assert imports == ["numba in vain"]


def test_it_is_left_alone_where_it_is_not_there_or_not_wanted(imports, monkeypatch):
    monkeypatch.setattr(compiler, "installed", lambda: False)
    assert not compiler.earned(2 * compiler.PAID_BYTES)
    monkeypatch.setattr(compiler, "installed", lambda: True)
    monkeypatch.setattr(compiler, "_moved_bytes", 0)
    monkeypatch.setenv(compiler.SWITCH, "0")
    assert not compiler.earned(2 * compiler.PAID_BYTES)
    imports.append("numba")
    assert not compiler.earned(1)
