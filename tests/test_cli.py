"""The command line: what it prints agrees with plain h5py, and it never shows a traceback."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import labeled
from labeled.cli.head import as_pixels, colour_lines, gallery, number_lines, shade_lines
from labeled.cli.main import main, warnings_as_lines
from labeled.cli.options import in_flags, one_line
from labeled.errors import LabeledWarning
from make_files import DIGIT_LABELS, digits, fuel_file, plain_file, ragged_file

IMAGES = hnp.arrays(
    np.uint8,
    st.tuples(st.integers(1, 7), st.integers(1, 9), st.just(3)),
)


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
    assert re.search(r"labels +6 rows \(without features\)", text)
    assert repr(labeled.open_dataset(digit_file)).partition("\n")[2] in text
    assert re.search(r"title +made up", text)


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


def test_info_says_that_values_of_variable_length_lie_elsewhere(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as f:
        signal = f.create_dataset("signal", (500,), h5py.vlen_dtype("f4"))
        for row in range(500):
            signal[row] = np.zeros(50 + row, "f4")
        f["kind"] = np.arange(500)
    text = run("info", tmp_path / "x.h5").stdout
    assert re.search(r"signal +\S+ kiB of references \(values lie in HDF5's heap\)", text)
    assert re.search(r"kind +3.91 kiB$", text, re.MULTILINE)


def test_info_of_text_and_of_attributes_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "text.h5"
    with h5py.File(path, "w") as f:
        f["word"] = ["a", "bb"]
        f["word"].dims[0].label = "batch"
        f.attrs.create("name", b"\xff", dtype=h5py.string_dtype())
    result = run("info", path, "--json")
    (facts,) = json.loads(result.stdout_bytes.decode("utf-8"))
    assert facts["sources"]["word"]["space"] is None
    assert "name" in facts["attributes"]
    assert "word" in run("info", path).stdout


def test_info_opens_a_file_of_many_datasets_as_often_as_one_of_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    genuine = h5py.File.__init__

    def counted(self: h5py.File, name: Any, *args: Any, **options: Any) -> None:
        opened.append(name)
        genuine(self, name, *args, **options)

    counts, sizes = [], []
    for n in (2, 30):
        path = tmp_path / f"{n}.h5"
        with h5py.File(path, "w") as file:
            for i in range(n):
                file.create_dataset(f"x{i}", data=np.zeros((10 + i, 3)), chunks=(4, 3))
            sizes.append([file[f"x{i}"].id.get_storage_size() for i in range(n)])
        with monkeypatch.context() as patch:
            patch.setattr(h5py.File, "__init__", counted)
            (facts,) = json.loads(run("info", "--json", str(path)).stdout)
        assert [facts["sources"][f"x{i}"]["stored_bytes"] for i in range(n)] == sizes[-1]
        counts.append(len(opened))
        opened.clear()
    assert counts[0] == counts[1]


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


def test_info_of_many_files_alike_shows_the_first(tmp_path: Path) -> None:
    for number in range(6):
        name = "other" if number == 2 else "x"
        labeled.write(tmp_path / f"{number}.hdf5", {name: np.zeros((number + 1, 2))})
    said = run("info", tmp_path)
    assert [line[-6:] for line in re.findall(r"^\S+\.hdf5", said.output, re.M)] == [
        "0.hdf5",
        "2.hdf5",
    ]
    (rest,) = re.findall(r"^\.\.\. .*", said.output, re.M)
    assert rest == "... and 4 more files like it, 1.hdf5 to 5.hdf5; --json describes each"
    assert len(json.loads(run("info", tmp_path, "--json").output)) == 6


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


def test_head_of_a_split_follows_its_list(digit_file: str) -> None:
    text = run("head", digit_file, "targets", "--split", "few").stdout
    with h5py.File(digit_file) as f:
        wanted = f["targets"][:][[50, 41, 59], 0].tolist()
    assert [int(n) for n in re.findall(r"row \d +(\d+)", text)] == wanted


def test_head_and_one_example_show_single_values(tmp_path: Path) -> None:
    path = str(tmp_path / "kinds.hdf5")
    kinds = h5py.enum_dtype({"cat": 0, "dog": 1, "bird": 5}, basetype="u1")
    with h5py.File(path, "w") as f:
        f.create_dataset("kind", data=np.array([5, 0, 2], "u1"), dtype=kinds)
    lines = run("head", path, "kind").stdout.splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines[1:4]] == ["5 (bird)", "0 (cat)", "2"]
    assert "kind  ()  uint8  5" in repr(labeled.open_dataset(path)[0])


def test_head_writes_times_without_zeros_at_their_end(tmp_path: Path) -> None:
    times = np.array(["2024-02-03T04:05:06", "2024-02-03T04:05:06.070", "NaT"], "M8[ns]")
    path = labeled.write(tmp_path / "times.hdf5", {"t": times})
    told = run("head", path, "t").stdout.split()
    assert [word for word in told if word.startswith(("2024", "NaT"))] == [
        "2024-02-03T04:05:06",
        "2024-02-03T04:05:06.07",
        "NaT",
    ]


@pytest.mark.parametrize("n_rows", [0, 1, 1000])
def test_head_of_any_number_of_rows_and_every_source(digit_file: str, n_rows: int) -> None:
    shown = run("head", digit_file, "--rows", n_rows)
    assert shown.exit_code == 0
    assert len(re.findall(r"^targets  ", shown.stdout, re.MULTILINE)) == 1
    drawn = len(re.findall(r"row \d+", shown.stdout))
    assert drawn == 2 * min(n_rows, 60)  # of images and of targets


def test_head_fills_examples_of_different_shapes_up(tmp_path: Path) -> None:
    images = [np.full((1, 2, 2 + i), 9, np.uint8) for i in range(3)]
    path = ragged_file(tmp_path / "ragged.hdf5", images, np.arange(3)[:, None])
    text = run("head", path, "image_features", "--numbers", "--rows", 2).stdout
    assert "(batch: 3, channel: *, height: *, width: *)  uint8  first 2 rows" in text
    rows = [line.split()[2:] for line in text.splitlines() if "row " in line]
    assert rows == [list("990990"), list("999999")]


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
    assert "row 0  0  1  2  3  4  0" in told
    assert f"row 1  png of 5 x 7 x 3, {len(encoded[1])} bytes" in told
    assert "row 0  137  80  78  71" in run("head", path, "photos", "--numbers").stdout
    remedy = re.search(r"pipeline=(.*?\)\})\)", told)
    assert remedy is not None
    pipeline = eval(remedy[1], {"labeled": labeled})
    batch = next(iter(labeled.open_dataset(path).batches(3, pipeline=pipeline)))
    assert [one.shape for one in batch["photos"].values] == [(4, 7, 3), (5, 7, 3), (6, 7, 3)]


@pytest.mark.parametrize("values", [np.zeros((0, 3)), np.zeros((4, 0)), np.array(["a", "b" * 40])])
def test_head_of_empty_and_text_sources(tmp_path: Path, values: np.ndarray[Any, Any]) -> None:
    path = plain_file(tmp_path / "x.h5", {"x": values}, {"x": ("batch", "feature")[: values.ndim]})
    assert run("head", path).exit_code == 0


# pictures


@given(IMAGES)
def test_colour_lines_hold_every_pixel(image: np.ndarray[Any, Any]) -> None:
    code = re.compile(r"\x1b\[38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)m▀")
    drawn = [[list(map(int, pair)) for pair in code.findall(line)] for line in colour_lines(image)]
    pixels = np.array(drawn, np.uint8).reshape(len(drawn), image.shape[1], 2, 3)
    upright = pixels.transpose(0, 2, 1, 3).reshape(-1, image.shape[1], 3)
    np.testing.assert_array_equal(upright[: len(image)], image)


@given(IMAGES)
def test_shades_are_square_and_never_get_darker_with_the_pixel(image: np.ndarray[Any, Any]) -> None:
    lines = shade_lines(image)
    assert [len(line) for line in lines] == [2 * image.shape[1]] * len(image)
    order = " .:-=+*#%@"
    levels = np.array([[order.index(c) for c in line[::2]] for line in lines])
    grey = image.mean(axis=2)
    by_grey = levels.ravel()[np.argsort(grey, axis=None, kind="stable")]
    assert (np.diff(by_grey) >= 0).all()


@given(st.integers(0, 9), st.integers(20, 120), st.booleans())
def test_a_gallery_holds_every_image_and_stays_within_the_columns(
    n: int, columns: int, colour: bool
) -> None:
    captions = [f"row {i}" for i in range(n)]
    lines = gallery(np.zeros((n, 4, 6), np.uint8), captions, colour=colour, columns=columns)
    seen = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert re.findall(r"row \d", " ".join(seen)) == captions
    assert all(len(line) <= columns for line in seen)


@given(hnp.arrays(np.float64, (2, 3, 4)))
def test_pixels_keep_the_order_of_values(values: np.ndarray[Any, Any]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        pixels = as_pixels(values)
    finite = np.isfinite(values)
    by_value = pixels[finite].astype(int)[np.argsort(values[finite])]
    assert (np.diff(by_value) >= 0).all()


@given(hnp.arrays(st.sampled_from([np.int16, np.float32, np.bool_]), hnp.array_shapes(max_dims=3)))
def test_number_lines_are_aligned(values: np.ndarray[Any, Any]) -> None:
    lines = number_lines(values)
    assert len(lines) == len(values)
    assert len({len(line) for line in lines}) == 1


# errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("info", "no_such.hdf5"), "does not exist"),
        (("head", "no_such.hdf5"), "does not exist"),
        (("head", "FILE", "featurez"), "did you mean 'features'?"),
        (("head", "FILE", "--split", "trian"), "did you mean 'train'?"),
        (("demo", "--file", "FILE", "--memory", "1 kiB"), "too small"),
        (("demo", "--file", "FILE", "--memory", "lots"), "is not a size"),
        (("demo", "--file", "no_such_folder/x.hdf5", "--keep"), "no_such_folder' does not exist"),
        (("demo", "--file", "no_such.hdf5"), "does not exist"),
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


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("head",),
        ("info",),
        ("nonsense",),
        ("head", "x", "--rows", "-1"),
        ("demo", "--rows", "3"),
        ("demo", "--file", "FILE", "--rows", "5000"),
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


def test_the_same_warning_twice_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings_as_lines(one_line):
        for text in ("a label\n is missing", "a label is missing", "another"):
            warnings.warn(text, LabeledWarning, stacklevel=1)
    assert capsys.readouterr().err == "Warning: a label is missing\nWarning: another\n"


@pytest.mark.parametrize("command", ["convert", "repack"])
def test_refusals_speak_of_flags(tmp_path: Path, digit_file: str, command: str) -> None:
    there = tmp_path / "there.hdf5"
    there.write_text("precious")
    refused = run(command, digit_file, there)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "pass --overwrite to replace it" in refused.stderr
    assert there.read_text() == "precious"


def test_names_of_axes_are_asked_for_as_the_command_takes_them(tmp_path: Path) -> None:
    path = tmp_path / "plain.hdf5"
    with h5py.File(path, "w") as f:
        f["photos"] = np.zeros((4, 8, 9, 3), np.uint8)
    told = run("head", path).stderr
    (flag, names), *_ = re.findall(r"(--dims) (photos=\S+)", told)
    assert run("head", path, flag, names).stderr == ""
    other = shutil.copy(path, tmp_path / "other.hdf5")
    told = run("info", other).stderr  # has no such option
    assert told.endswith(
        "dims={'photos': ('batch', 'height', 'width', 'channel')} to "
        "labeled.open_dataset in Python\n"
    )


def test_info_shows_the_sources_that_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.hdf5"
    with h5py.File(path, "w") as f:
        f.create_dataset("far", (10,), "f4", external=[("x.bin", 0, 40)])
        f["near"] = np.zeros(3)
        f["near"].dims[0].label = "batch"
    assert "opens without 'far'" in run("info", path).stderr
    (facts,) = json.loads(run("info", path, "--source", "near", "--json").stdout)
    assert list(facts["sources"]) == ["near"]


WORDS = [
    ("leave it out with sources=[...]", "leave it out with --source NAME"),
    ("dims={'x': ('a', 'b'), 'y': ('a',)} fit", "--dims x=a,b --dims y=a fit"),
    ("pass dims={source: (...)}, or", "pass --dims SOURCE=a,b,c, or"),
    ("memory='a lot' is not a size", "--memory 'a lot' is not a size"),
    ("give split={'train': 0.8}, or", "give --split train=0.8, or"),
    (
        "f['x'].dims[0] = 1, netcdf=False or io='mmap', nothing=1",
        "f['x'].dims[0] = 1, netcdf=False or io='mmap', nothing=1",
    ),
    ("dims= names 'x'; progress=False", "--dims names 'x'; --no-progress"),
    ("a == b, seed==3, memory={'open", "a == b, seed==3, --memory{'open"),
]


@pytest.mark.parametrize(("said", "wanted"), WORDS)
def test_parameters_become_options(said: str, wanted: str) -> None:
    assert in_flags(said, main.commands["convert"]) == wanted
    assert in_flags(said, None) == said


def test_every_command_says_what_it_can_do_about_other_files(tmp_path: Path) -> None:
    path = tmp_path / "outside.hdf5"
    with h5py.File(path, "w") as f:
        f["x"] = np.arange(64)
        f["x"].dims[0].label = "batch"
        f["y"] = h5py.ExternalLink("nowhere.hdf5", "y")
    runs = [
        (["verify", str(path), "--source", "y"], 1),
        (["bench", str(path), "--source", "y"], 1),
        (["doctor", str(path)], 0),
        (["repack", str(path), str(tmp_path / "y")], 1),
    ]
    for words, code in runs:
        said = CliRunner().invoke(main, words)
        assert said.exit_code == code, said.output
        assert "--allow-external" in said.stderr
        assert "allow_external=" not in said.stderr


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


def test_verify_reads_data_outside_only_if_asked_to(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "x.hdf5", {"x": np.arange(5), "y": np.arange(5) * 2})
    labeled.write(tmp_path / "other.hdf5", {"y": np.arange(5) * 2})
    with h5py.File(path, "r+") as f:
        del f["y"]
        f["y"] = h5py.ExternalLink("other.hdf5", "y")
    assert CliRunner().invoke(main, ["verify", path]).exit_code == 1
    with h5py.File(path, "r+") as f:
        f["a"] = f["x"]  # the name that `x` is shown by now
    assert CliRunner().invoke(main, ["verify", path]).exit_code == 1
    assert CliRunner().invoke(main, ["verify", path, "--source", "x"]).exit_code == 0
    assert CliRunner().invoke(main, ["verify", path, "--allow-external"]).exit_code == 0
    with h5py.File(path, "r+") as f:
        del f["y"]
    gone = CliRunner().invoke(main, ["verify", path])
    assert (gone.exit_code, "no source 'y'" in gone.stderr) == (1, True)


@given(st.text("abdims=({['x, .-"))
def test_any_message_can_be_said(text: str) -> None:
    assert isinstance(in_flags(text, main.commands["convert"]), str)


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
        usage, _, *lines = run(*name.split(), "--help").stdout.splitlines()
        assert usage.startswith("Usage: ")
        assert lines[0].startswith(f"  labeled {name}")
        assert len(lines) <= 38, name  # a screen
    assert labeled.__version__ in run("--version").stdout


def test_messages_are_put_on_one_line() -> None:
    assert one_line(ValueError("a\n  b")) == "a b"
    assert one_line(ValueError()) == "ValueError"


def test_the_command_as_its_own_process(digit_file: str, tmp_path: Path) -> None:
    """Plain text in a pipe, no progress bar, no traceback, the right exit codes."""
    command = [sys.executable, "-m", "labeled"]
    good = subprocess.run([*command, "head", digit_file], capture_output=True, text=True)
    assert (good.returncode, good.stderr) == (0, "")
    assert "\x1b" not in good.stdout
    bad = subprocess.run([*command, "info", tmp_path / "x"], capture_output=True, text=True)
    assert (bad.returncode, bad.stdout) == (1, "")
    assert re.fullmatch(r"Error: file .* does not exist; check the path\n", bad.stderr)


def test_head_and_verify_as_json(tmp_path):
    path = labeled.write(
        tmp_path / "x.h5",
        {"x": np.array([[1.5, np.nan], [2, 3]]), "words": [[1], [2, 3]], "s": np.array(["a", "ü"])},
    )
    rows = json.loads(run("head", path, "--rows", "2", "--json").stdout)
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_completes(shell, monkeypatch):
    monkeypatch.setenv("COMP_WORDS", "labeled ver")
    monkeypatch.setenv("COMP_CWORD", "1" if shell != "fish" else "ver")
    complete = get_completion_class(shell)(main, {}, "labeled", "_LABELED_COMPLETE")
    assert "verify" in complete.complete()


def test_every_command_says_in_one_line_what_it_does() -> None:
    listed = run("--help").stdout.partition("Commands:")[2].partition("In Python")[0]
    assert "..." not in listed
    assert len(listed.split("\n")) == len(main.commands) + 3


def test_head_draws_pictures_whose_axes_are_named_by_the_user(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "plain.hdf5", "w") as f:
        f["photos"] = np.zeros((3, 8, 8, 3), "u1")
        f["labels"] = np.zeros(3)
    unnamed = run("head", tmp_path / "plain.hdf5")
    assert "black is" not in unnamed.stdout
    assert "--dims photos=batch,height,width,channel when" in unnamed.stderr
    names = "photos=batch,height,width,channel"
    named = run("head", tmp_path / "plain.hdf5", "photos", "--dims", names)
    assert "black is" in named.stdout
    assert named.stderr == ""  # nothing is said of other sources


def test_head_shows_texts_of_some_length(tmp_path: Path) -> None:
    texts = ["2020-01-01 00:00:00+00:00", "x" * 100, "ab"]
    path = labeled.write(tmp_path / "texts.hdf5", {"when": texts, "pairs": [["a" * 40, "b"]] * 3})
    shown = CliRunner().invoke(main, ["head", path]).output
    assert "when  (batch: 3)  text\n" in shown
    assert "'2020-01-01 00:00:00+00:00'\n" in shown
    assert f"'{'x' * 68}...\n" in shown
    assert f"'{'a' * 20}...  'b'\n" in shown
