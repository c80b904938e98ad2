"""The command line: what it prints agrees with plain h5py, and it never shows a traceback."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner, Result

import labeled
from labeled.cli.main import main
from make_files import DIGIT_LABELS, digits, fuel_file, plain_file, ragged_file


def run(*words: Any, **options: Any) -> Result:
    """Run a command; an exception that is not click's own fails the test."""
    result = CliRunner().invoke(main, list(map(str, words)), **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def digit_file(tmp_path: Path) -> str:
    return fuel_file(
        tmp_path / "digits.hdf5",
        digits(),
        {"train": (0, 40), "few": [50, 41, 59], "labels": {"targets": (3, 9)}},
        DIGIT_LABELS,
        chunks={"features": (16,)},
        compression={"features": 4},
        shuffle=True,
        attrs={"title": "made up"},
    )


def info_of(path: str) -> dict[str, Any]:
    (facts,) = json.loads(run("info", path, "--json").stdout)
    return facts


# info


def test_info_says_what_h5py_says(digit_file: str) -> None:
    facts = info_of(digit_file)
    with h5py.File(digit_file) as f:
        for name, source in facts["sources"].items():
            dataset = f[name]
            assert tuple(source["shape"]) == dataset.shape
            assert source["dims"] == [dim.label for dim in dataset.dims]
            assert source["dtype"] == str(dataset.dtype)
            assert source["stored_bytes"] == dataset.id.get_storage_size()
            assert source["n_bytes"] == dataset.nbytes
            assert (source["chunks"] and tuple(source["chunks"])) == dataset.chunks
            packed = dataset.compression is not None
            assert ("gzip 4" in [step["name"] for step in source["filters"]]) == packed
    assert set(facts["sources"]) == {"features", "targets"}
    assert facts["attributes"]["title"] == "made up"
    counts = {s: {n: r["n_rows"] for n, r in by.items()} for s, by in facts["splits"].items()}
    assert counts == {
        "train": {"features": 40, "targets": 40},
        "few": {"features": 3, "targets": 3},
        "labels": {"targets": 6},
    }


def test_info_as_text_names_everything(digit_file: str) -> None:
    text = run("info", digit_file).stdout
    features = next(line for line in text.splitlines() if "features" in line)
    assert "(batch: 60, channel: 3, height: 5, width: 7)" in features
    assert "chunks (16, 3, 5, 7), shuffle+gzip 4" in features
    assert re.search(r"few +3 rows\n", text)
    assert re.search(r"labels +6 rows \(without 'features'\)", text)
    assert repr(labeled.open_dataset(digit_file)).partition("\n")[2] in text
    assert re.search(r"title +made up", text)


@pytest.mark.parametrize("splits", [None, {"all": (0, 4)}, {"train": (0, 3)}])
def test_info_lists_each_statistic_once(tmp_path: Path, splits: dict[str, Any] | None) -> None:
    path = labeled.write(tmp_path / "x.hdf5", {"x": np.arange(4.0)}, splits=splits)
    lines = run("info", path).stdout.partition("statistics:")[2].splitlines()
    numbers = [line.split()[1:3] for line in lines if line.startswith("  x")]
    assert numbers == [["all", "(4)"], *([["train", "(3)"]] if splits == {"train": (0, 3)} else [])]


@pytest.mark.parametrize("word", ["false", "False"])
def test_options_of_formats_are_written_as_in_json_or_in_python(tmp_path: Path, word: str) -> None:
    (tmp_path / "x.csv").write_text("1,2\n3,4\n")
    target = tmp_path / "x.hdf5"
    done = run("convert", tmp_path / "x.csv", target, "--option", f"header={word}")
    assert done.exit_code == 0, done.output
    assert labeled.open_dataset(target)["features"].values.tolist() == [[1, 2], [3, 4]]


def test_info_lists_what_is_not_opened_and_ragged_sources(tmp_path: Path) -> None:
    odd = tmp_path / "odd.hdf5"
    with h5py.File(odd, "w") as f:
        f["raw"] = np.zeros(3, "V5")
        f["x"] = np.arange(5.0)
        f["x"].dims[0].label = "batch"
        f.attrs["no"] = np.nan
    images = [np.zeros((3, 4 + i, 5), np.uint8) for i in range(4)]
    ragged = ragged_file(tmp_path / "ragged.hdf5", images, np.arange(4)[:, None])

    facts = info_of(str(odd))
    assert "opaque" in facts["not_opened"]["raw"]
    assert facts["attributes"]["no"] == "nan"
    assert "opaque" in run("info", odd).stdout
    assert "(batch: 4, channel: *, height: *, width: *)" in run("info", ragged).stdout
    assert info_of(ragged)["sources"]["image_features"]["n_bytes"] is None


def test_links_out_of_a_file_are_followed_where_that_is_asked_for(tmp_path: Path) -> None:
    plain_file(tmp_path / "frames.h5", {"x": np.arange(3)}, {"x": ("batch",)})
    plain_file(tmp_path / "master.h5", {"y": np.arange(3)}, {"y": ("batch",)})
    with h5py.File(tmp_path / "master.h5", "a") as f:
        f["away"], f["gone"] = (h5py.ExternalLink(f"{n}.h5", "/x") for n in ("frames", "gone"))
    for command in ("info", "head"):
        without = run(command, tmp_path / "master.h5")
        assert (without.exit_code, "--allow-external" in without.output) == (0, command == "info")
        shown = run(command, tmp_path / "master.h5", "--allow-external")
        assert (shown.exit_code, "away" in shown.stdout) == (0, True)


def test_info_of_a_folder_shows_the_good_files_and_reports_the_bad(tmp_path: Path) -> None:
    plain_file(tmp_path / "a.h5", {"x": np.arange(3)}, {"x": ("batch",)})
    (tmp_path / "b.h5").write_text("not a file of numbers")
    plain_file(tmp_path / "c.h5", {"y": np.arange(4)}, {"y": ("batch",)})

    shown = run("info", tmp_path)
    assert shown.exit_code == 1
    assert "a.h5" in shown.stdout
    assert "c.h5" in shown.stdout
    assert re.fullmatch(r"Error: file .*b\.h5' is not an HDF5 file.*\n", shown.stderr)

    listed = json.loads(run("info", "--json", tmp_path).stdout)
    assert ["error" in facts for facts in listed] == [False, True, False]


# head


def test_head_prints_the_numbers_that_h5py_reads(digit_file: str) -> None:
    text = run("head", digit_file, "features", "--numbers", "--rows", 7).stdout
    rows = [line for line in text.splitlines() if line.lstrip().startswith("row")]
    printed = [[int(word) for word in re.sub(r"\.\.\..*", "", r).split()[2:]] for r in rows]
    with h5py.File(digit_file) as f:
        assert printed == f["features"][:7].reshape(7, -1)[:, :10].tolist()
    assert "... 95 more values" in rows[0]


def test_head_tells_of_encoded_pictures_what_they_are_and_what_decodes_them(tmp_path: Path) -> None:
    """Their bytes were shown, 137 80 78 71, as if they were values."""
    image = pytest.importorskip("PIL.Image")
    encoded = []
    for i in range(3):
        file = io.BytesIO()
        pixels = np.random.default_rng(i).integers(0, 256, (4 + i, 7, 3), dtype=np.uint8)
        image.fromarray(pixels).save(file, "png")
        encoded.append(np.frombuffer(file.getvalue(), np.uint8))
    noise = [np.arange(5 + i, dtype=np.uint8) for i in range(3)]
    path = labeled.write(tmp_path / "p.hdf5", {"photos": encoded, "noise": noise})
    told = run("head", path, "--rows", 2).stdout
    assert "row 0  0  1  2  3  4\n" in told
    assert f"row 1  png of 5 x 7 x 3, {len(encoded[1])} bytes" in told
    assert "row 0  137  80  78  71" in run("head", path, "photos", "--numbers").stdout
    remedy = re.search(r"pipeline=(.*?\)\})\)", told)
    assert remedy is not None
    pipeline = eval(remedy[1], {"labeled": labeled})
    batch = next(iter(labeled.open_dataset(path).batches(3, pipeline=pipeline)))
    assert [one.shape for one in batch["photos"].values] == [(4, 7, 3), (5, 7, 3), (6, 7, 3)]


def pictures_file(path: Path, **labels: Any) -> str:
    images = np.zeros((3, 4, 6, 3), "u1")
    images[:, 1], images[1, 2:, 3:] = (255, 128, 0), 255
    return plain_file(path, {"photos": images, "y": np.zeros(3)}, labels)


def test_pictures_are_drawn_in_shades_or_in_colour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pictures_file(
        tmp_path / "x.h5", photos=("batch", "height", "width", "channel"), y=("batch",)
    )
    lines = run("head", path, "photos", env={"COLUMNS": "40"}).stdout.splitlines()
    dark, light = " " * 12, "=" * 12
    half = "      @@@@@@"
    wanted = [
        ("row 0".ljust(12), "row 1"),
        (dark, dark),
        (light, light),
        (dark, half),
        (dark, half),
    ]
    assert lines[1:6] == [f"  {one}  {two}" for one, two in wanted]
    assert lines[6] == "  row 2"
    assert lines[-2] == "  (black is 0, white is 255)"
    code = [
        sys.executable,
        "-c",
        f"import pty; pty.spawn([{sys.executable!r}, '-m', 'labeled', 'head', {path!r}, 'photos'])",
    ]
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = subprocess.run(code, capture_output=True, text=True).stdout
    assert "38;2;0;0;0;48;2;255;128;0m▀" in coloured
    assert "38;2;255;255;255;48;2;255;255;255m▀" in coloured


def test_values_that_are_not_finite_leave_the_others_of_a_picture_apart(tmp_path: Path) -> None:
    values = np.array([[[0.0, 1.0], [0.5, np.inf]], [[np.nan] * 2] * 2])
    dims = {"x": ("batch", "height", "width")}
    path = labeled.write(tmp_path / "x.hdf5", {"x": values}, dims=dims)
    drawn = run("head", path, env={"NO_COLOR": "1"})
    assert drawn.stderr == ""
    lines = [line.rstrip() for line in drawn.stdout.splitlines()]
    assert lines[-4:-1] == ["    @@", "  ==@@", "  (black is 0, white is 1)"]
    none = run("head", labeled.write(tmp_path / "n.hdf5", {"x": values[1:]}, dims=dims))
    assert (none.stderr, none.stdout.splitlines()[-2]) == ("", "  (black is 0, white is 0)")


def test_names_of_axes_are_asked_for_as_the_command_takes_them(tmp_path: Path) -> None:
    path = pictures_file(tmp_path / "x.h5", y=("batch",))
    unnamed = run("head", path)
    assert "black is" not in unnamed.stdout
    (flag, names), *_ = re.findall(r"(--dims) (photos=\S+)", unnamed.stderr)
    named = run("head", path, "photos", flag, names)
    assert (named.stderr, "black is" in named.stdout) == ("", True)
    odd = run("head", path, "photos", flag, 'photos=["n=1", "y=2", "x", "c"]', flag, "y=batch")
    assert (odd.stderr, "photos  (n=1: 3, y=2: " in odd.stdout) == ("", True)


# errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("info", "no_such.hdf5"), "does not exist"),
        (("head", "no_such.hdf5"), "does not exist"),
        (("head", "FILE", "featurez"), "did you mean 'features'?"),
        (("head", "FILE", "--split", "trian"), "did you mean 'train'?"),
        (("demo", "--memory", "1 kiB"), "too small"),
        (("demo", "--memory", "lots"), "is not a size"),
        (("demo", "--keep", "no_such_folder/x.hdf5"), "no_such_folder' does not exist"),
    ],
)
def test_errors_are_one_line_on_stderr(
    digit_file: str, words: tuple[str, ...], message: str
) -> None:
    shown = run(*(digit_file if word == "FILE" else word for word in words))
    assert shown.exit_code == 1
    last = shown.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    assert message in last
    assert not tracemalloc.is_tracing()  # all of Python would be slower from here on


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("head",),
        ("info",),
        ("nonsense",),
        ("head", "x", "--rows", "-1"),
    ],
)
def test_wrong_usage_is_exit_code_2(digit_file: str, words: tuple[str, ...]) -> None:
    assert run(*(digit_file if word == "FILE" else word for word in words)).exit_code == 2


def test_a_warning_is_said_once_in_one_line(tmp_path: Path) -> None:
    path = plain_file(tmp_path / "plain.h5", {"x": np.zeros((4, 2))})
    shown = run("head", path)
    assert shown.exit_code == 0
    assert shown.stderr.count("Warning: ") == 1
    assert shown.stderr.count("\n") == 1
    assert "label" in shown.stderr


@pytest.mark.parametrize("command", ["convert", "repack"])
def test_refusals_speak_of_flags(tmp_path: Path, digit_file: str, command: str) -> None:
    there = tmp_path / "there.hdf5"
    there.write_text("precious")
    refused = run(command, digit_file, there)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "pass --overwrite to replace it" in refused.stderr
    assert there.read_text() == "precious"


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (np.array([[1 + 2j, 0]]), [["(1+2j)", "0j"]]),
        (
            np.array([["2020-01-01T00", "NaT"]], "M8[ns]"),
            [["2020-01-01T00:00:00.000000000", "NaT"]],
        ),
    ],
)
def test_rows_without_a_type_in_json_are_lists_of_texts(
    tmp_path: Path, values: Any, shown: Any
) -> None:
    path = labeled.write(tmp_path / "x.hdf5", {"x": values})
    assert json.loads(run("head", "--json", path).stdout) == {"x": shown}


def test_verify_goes_on_with_other_files(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as f:
        f["x"] = np.arange(3)
    labeled.write(tmp_path / "b.hdf5", {"x": np.arange(3)})
    said = CliRunner().invoke(main, ["verify", str(tmp_path)])
    assert said.exit_code == 1
    assert "a.hdf5' has no checksums" in said.stderr
    assert "as written: x (3 rows)" in said.stdout
    found = json.loads(CliRunner().invoke(main, ["verify", str(tmp_path), "--json"]).stdout)
    assert [each["sound"] for each in found] == [False, True]


def test_verify_says_that_nothing_was_compared(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "a.hdf5", {"x": np.arange(3)})
    with h5py.File(path, "r+") as f:
        f["y"] = np.arange(3)
    said = CliRunner().invoke(main, ["verify", path, "--source", "y"])
    assert (said.exit_code, said.stdout) == (1, "")
    assert "a.hdf5' has no checksums of ['y']" in said.stderr


def test_a_file_without_sources_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "nothing.hdf5"
    h5py.File(path, "w").close()
    assert "no sources" in run("info", path).stdout
    assert "holds no source" in run("head", path).stdout
    assert "holds no source to convert" in run("convert", path, tmp_path / "b.hdf5").stderr


def test_help_and_version() -> None:
    page = run("--help").stdout
    assert all(name in page for name in ("info", "head", "demo", "open_dataset"))
    for name in ("", *main.commands):
        page = run(*name.split(), "--help").stdout
        usage, _, examples, *_ = page.split("\n\n")
        assert usage.startswith("Usage: ")
        assert examples.startswith(f"  labeled {name}")
        assert len(page.splitlines()) <= 40, name  # a screen
    assert labeled.__version__ in run("--version").stdout


def test_the_command_as_its_own_process(digit_file: str) -> None:
    """Plain text in a pipe, no progress bar."""
    command = [sys.executable, "-m", "labeled", "head", digit_file]
    good = subprocess.run(command, capture_output=True, text=True)
    assert (good.returncode, good.stderr) == (0, "")
    assert "\x1b" not in good.stdout


def test_closed_streams_are_written_to_by_nobody(
    digit_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python has None in their place: of programs without a terminal, and in a shell by `>&-`."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    for name in ("info", "head"):
        assert not main([name, digit_file], standalone_mode=False)
    for wanted in (None, True):
        labeled.write(tmp_path / "x", {"x": np.arange(3)}, overwrite=True, progress=wanted)
    batches = labeled.open_dataset(tmp_path / "x").batches(2, progress=True)
    assert sum(batch.count for batch in batches) == 3


def test_head_and_verify_as_json(tmp_path):
    path = labeled.write(
        tmp_path / "x.h5",
        {"x": np.array([[1.5, np.nan], [2, 3]]), "words": [[1], [2, 3]], "s": np.array(["a", "ü"])},
    )
    with h5py.File(path, "a") as f:
        f["x"].attrs["wide"] = f["wide"] = np.array([0.5, np.inf], np.longdouble)
    (facts,) = json.loads(run("info", path, "--json").stdout)
    assert facts["sources"]["x"]["attributes"]["wide"] == [0.5, "inf"]
    rows = json.loads(run("head", path, "--rows", "2", "--json").stdout)
    assert rows.pop("wide") == [0.5, "inf"]
    assert rows == {"s": ["a", "ü"], "words": [[1], [2, 3]], "x": [[1.5, "nan"], [2.0, 3.0]]}
    (found,) = json.loads(run("verify", path, "--json").stdout)
    assert found["sound"]
    assert found["n_rows"]["x"] == 2
    with h5py.File(path, "a") as f:
        f["x"][1, 1] = 7
    done = run("verify", path, "--json")
    assert done.exit_code == 1
    (found,) = json.loads(done.stdout)
    assert [each["source"] for each in found["differences"]] == ["x"]


def test_sources_of_different_lengths_are_shown_each_by_itself(tmp_path: Path) -> None:
    path = plain_file(tmp_path / "x.h5", {"x": np.arange(4), "y": np.arange(5.0, 7), "z": [8]})
    assert json.loads(run("head", path, "--json", "--rows", "3").stdout) == {
        "x": [0, 1, 2],
        "y": [5.0, 6.0],
        "z": [8],
    }
    copied = run("repack", path, tmp_path / "y.h5")
    assert copied.stdout.endswith("; x (4 rows), y (2 rows), z (1 row)\n")
    assert "z (1 row)" in run("verify", tmp_path / "y.h5").stdout


def test_examples_of_different_shapes_are_shown_as_they_are(tmp_path: Path) -> None:
    flat, deep = [[7], [], list(range(12))], [np.ones((2, 1)), np.zeros((0, 3)), np.ones((1, 3))]
    path = labeled.write(tmp_path / "x.h5", {"r": flat, "s": labeled.Ragged.of(deep)})
    shown = run("head", path).stdout.splitlines()
    assert shown[1:4] == [
        "  row 0  7",
        "  row 1",
        "  row 2  0  1  2  3  4  5  6  7  8  9  ... 2 more values",
    ]
    assert shown[6:9] == ["  row 0 (2 x 1)  1  1", "  row 1 (0 x 3)", "  row 2 (1 x 3)  1  1  1"]


def test_options_of_formats_are_named_as_they_are_given(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes("n,größe\n1,ß\n".encode("latin-1"))
    words = "convert", tmp_path / "x.csv", tmp_path / "x.h5"
    assert "pass --option encoding=latin-1, 'cp1252' or" in run(*words).stderr
    assert run(*words, "--option", "encoding=latin-1").exit_code == 0
    assert "pass encoding='latin-1'" in run("info", tmp_path / "x.csv").stderr
    path = tmp_path / "seed=7/header=1.csv"
    assert f"file {str(path)!r} does not exist" in run("convert", path, tmp_path / "y.h5").stderr


@pytest.mark.parametrize("words", [("head", "w"), ("bench", "--source", "w")])
def test_a_source_that_is_not_there_is_named_as_it_was_given(tmp_path: Path, words: Any) -> None:
    path = labeled.write(tmp_path / "x.h5", {"word": np.arange(4)})
    failed = run(words[0], path, *words[1:])
    how = "SOURCE" if words[0] == "head" else "--source"
    assert failed.stderr.startswith(f"Error: {how} names 'w', which is not")


def test_verify_does_not_ask_for_names_of_axes(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "x.h5", {"x": np.zeros((4, 2))})
    with h5py.File(path, "a") as file:
        for axis in file["x"].dims:
            axis.label = ""
            axis.detach_scale(axis[0])
    assert run("verify", path).stderr == ""


@pytest.mark.filterwarnings("ignore::UserWarning:zarr")
def test_info_tells_the_size_of_all_of_a_store(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    xr.Dataset({"x": ("t", np.arange(9))}).to_zarr(tmp_path / "x.zarr", zarr_format=2)
    files = [path for path in (tmp_path / "x.zarr").rglob("*") if path.is_file()]
    assert info_of(tmp_path / "x.zarr")["file_bytes"] == sum(one.stat().st_size for one in files)


def test_info_tells_no_ratio_where_there_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n")
    assert run("info", tmp_path / "x.csv").stdout.endswith("in the file:\n  features  4 B\n")


def test_info_does_not_share_out_the_text_that_holds_all_columns(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,x\n2,y\n")
    shown = run("info", tmp_path / "x.csv").stdout
    assert shown.count("12 B of text, all columns together\n") == 2


def test_head_shows_durations_in_hours_and_minutes(tmp_path: Path) -> None:
    took = np.array([90_000_000_000, 1, "NaT"], "m8[ns]")
    path = labeled.write(tmp_path / "took.hdf5", {"took": took})
    shown = CliRunner().invoke(main, ["head", path]).output
    assert re.findall(r"row \d +(.*\S)", shown) == ["0:01:30", "1 nanoseconds", "NaT"]


def test_head_shows_texts_times_and_classes(tmp_path: Path) -> None:
    texts = ["2020-01-01 00:00:00+00:00", "x" * 100, "ab"]
    times = np.array(["2024-02-03T04:05:06", "2024-02-03T04:05:06.070", "NaT"], "M8[ns]")
    sources = {
        "when": texts,
        "pairs": [["a" * 40, "b"]] * 3,
        "t": times,
        "kind": np.array([5, 0, 2]),
    }
    path = labeled.write(
        tmp_path / "texts.hdf5",
        sources,
        {"odd": [2, 0]},
        source_attrs={"kind": {"flag_values": [0, 5], "flag_meanings": "cat bird"}},
    )
    shown = CliRunner().invoke(main, ["head", path]).output
    assert "when  (batch: 3)  text\n" in shown
    assert "'2020-01-01 00:00:00+00:00'\n" in shown
    assert f"'{'x' * 68}...\n" in shown
    assert f"'{'a' * 20}...  'b'\n" in shown
    assert re.findall(r"row \d +(2024\S+|NaT)", shown) == [
        "2024-02-03T04:05:06",
        "2024-02-03T04:05:06.07",
        "NaT",
    ]
    assert re.findall(r"row \d +(\d(?: .*)?)$", shown, re.MULTILINE) == ["5 (bird)", "0 (cat)", "2"]
    some = CliRunner().invoke(main, ["head", path, "kind", "--split", "odd"]).output
    assert re.findall(r"row \d +(\d)", some) == ["2", "5"]
