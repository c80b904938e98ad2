"""Where the old iterators and the native providers differ: one table, tested and printed.

Each case is a pair of expressions with what they give. `tests/test_compat_traps.py`
evaluates every one of them; `docs/traps_mxnet.md` is printed from the same list by running
this module.
"""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from record_files import pictures, png, record, write_records
from traps import DOCS, Case, Traps

import labeled
from labeled import providers
from labeled.compat import mxnet
from labeled.compat.mxnet.csviter import floats_of
from labeled.transforms import (
    Affine,
    Augment,
    Contrast,
    Crop,
    Normalize,
    PictureTransform,
    RandomCrop,
    mean_image,
)

IMAGES = pictures()


def write_files(folder: Path) -> SimpleNamespace:
    """Write twelve pictures, their list, ten digits, and numbers from 0 to 11."""
    at = SimpleNamespace(
        rec=str(folder / "a.rec"),
        multi=str(folder / "multi.rec"),
        lst=str(folder / "a.lst"),
        bad=str(folder / "bad.rec"),
        csv=str(folder / "a.csv"),
        image=str(folder / "i-idx3-ubyte"),
        label=str(folder / "l-idx1-ubyte"),
        folder=folder,
    )
    at.digits = {"images": at.image, "labels": at.label}
    write_records(at.rec, IMAGES, range(12))
    write_records(at.multi, IMAGES[:4], [[i, i + 1] for i in range(4)])
    Path(at.lst).write_text("".join(f"{10 * (i + 1)}\t{i}\tx.png\n" for i in range(12)))
    Path(at.bad).write_bytes(record(struct.pack("<IfQQ", 0, 0, 0, 0) + png(IMAGES[0])[:40]))
    Path(at.csv).write_text("".join(f"{i}\n" for i in range(12)))
    digits = np.arange(60, dtype=np.uint8).reshape(10, 2, 3)
    Path(at.image).write_bytes(struct.pack(">4I", 2051, 10, 2, 3) + digits.tobytes())
    Path(at.label).write_bytes(struct.pack(">2I", 2049, 10) + bytes(range(10)))
    return at


def names(folder: str | Path) -> dict[str, Any]:
    """Return what the expressions may use; writes small files into `folder`."""
    at = write_files(Path(folder))

    def old(kind: str = "ImageRecordIter", **parameters: Any) -> Any:
        return getattr(mxnet, kind)(**_given(at, kind, parameters))

    def native(
        *transforms: PictureTransform, path: Any = at.rec, batch_size: int = 4, **options: Any
    ) -> Any:
        ds = labeled.open_dataset(path, sources=("images", "labels"))
        if not transforms:
            return ds.as_provider(batch_size, **options)
        loader = ds.batches(batch_size, pipeline={"images": Augment(transforms)}, **options)
        return providers.IteratorProvider(loader, label="labels")

    def epochs(made: Any, count: int = 2) -> list[list[list[int]]]:
        """The labels of the batches of some epochs."""
        found = []
        for _ in range(count):
            found.append([batch.label[0].astype(int).tolist() for batch in made])
            getattr(made, "reset", lambda: None)()
        return found

    def pixels(made: Any) -> Any:
        return next(iter(made)).data[0]

    def alike(one: Any, other: Any) -> bool:
        return bool(np.array_equal(pixels(one), pixels(other)))

    return {
        "np": np,
        "labeled": labeled,
        "mxnet": mxnet,
        "providers": providers,
        "at": at,
        "old": old,
        "native": native,
        "epochs": epochs,
        "pixels": pixels,
        "alike": alike,
        "floats_of": floats_of,
        "Affine": Affine,
        "Contrast": Contrast,
        "Crop": Crop,
        "Normalize": Normalize,
        "RandomCrop": RandomCrop,
        "mean_image": mean_image,
        "IMAGES": IMAGES,
    }


def _given(at: SimpleNamespace, kind: str, parameters: dict[str, Any]) -> dict[str, Any]:
    usual: dict[str, Any]
    if kind.startswith("MNIST"):
        usual = {"image": at.image, "label": at.label, "batch_size": 4, "silent": True}
    elif kind.startswith("CSV"):
        usual = {"data_csv": at.csv, "data_shape": (1,), "batch_size": 5}
    else:
        usual = {
            "path_imgrec": at.rec, "data_shape": (3, 12, 16), "batch_size": 4, "verbose": False,
        }  # fmt: skip
    return {**usual, **parameters}


def outcome(expression: str, known: dict[str, Any], kinds: tuple[type, ...]) -> str:
    """Return what an expression gives; of an error, the first of `kinds` that it is."""
    try:
        return repr(eval(expression, dict(known)))
    except labeled.LabeledError as error:
        kind = next((k for k in kinds if isinstance(error, k)), type(error))
        return f"raises {kind.__name__}"


CASES = [
    Case(
        1,
        "The batch axis is the last one in Julia; a provider puts it where it is asked to.",
        "mxnet.ArrayDataProvider(np.zeros((2, 3, 15)), batch_size=4).provide_data",
        "[DataDesc(name='data', shape=(2, 3, 4))]",
        "[providers.ArrayDataProvider(np.zeros((15, 2, 3)), batch_size=4, axes=axes).provide_data "
        "for axes in ('first', 'last')]",
        "[[('data', (4, 2, 3))], [('data', (2, 3, 4))]]",
    ),
    Case(
        2,
        "Where the crop begins was declared and never used (version='seed' follows the manual) ...",
        "alike(old(), old(crop_x_start=0, crop_y_start=1))",
        "True",
        "np.array_equal(pixels(native(Crop((12, 16), y=1, x=0)))[0], IMAGES[0, 1:13, :16])",
        "True",
    ),
    Case(
        2,
        "... and angles of 0 and below did nothing.",
        "alike(old(), old(rotate=-90))",
        "True",
        "alike(native(), native(Affine(rotate=-90)))",
        "False",
    ),
    Case(
        3,
        "Digits are shuffled by default, but once; natively if asked, and in every epoch ...",
        "len(set(map(str, epochs(old('MNISTIter'), 3))))",
        "1",
        "len(set(map(str, epochs(native(path=at.digits, shuffle=True), 3))))",
        "3",
    ),
    Case(
        3,
        "... their values are 256ths; natively the bytes, until a factor is asked for ...",
        "float(pixels(old('MNISTIter', shuffle=False)).max() * 256)",
        "23.0",
        "int(pixels(native(path=at.digits)).max())",
        "23",
    ),
    Case(
        3,
        "... and a last batch that is short is left out.",
        "epochs(old('MNISTIter', shuffle=False), 1)",
        "[[[0, 1, 2, 3], [4, 5, 6, 7]]]",
        "[(b.label[0].tolist(), b.count_samples) for b in native(path=at.digits)][-1]",
        "([8, 9, 0, 0], 2)",
    ),
    Case(
        4,
        "Without a mean above zero contrast did nothing before 1.9.1.",
        "alike(old(version='seed'), old(version='seed', max_random_contrast=0.4))",
        "True",
        "alike(native(), native(Contrast(0.4)))",
        "False",
    ),
    Case(
        5,
        "A mean image was made of scaled pictures, and subtracted from others: with scale=0.5 "
        "the mean of what comes out is not 0.",
        "abs(float(np.concatenate([b.data[0] for b in "
        "old(mean_img=at.folder / 'old.bin', scale=0.5)]).mean())) > 10",
        "True",
        "abs(float(np.concatenate([b.data[0] for b in "
        "native(Normalize(mean_image(labeled.open_dataset(at.rec)['images']), "
        "scale=0.5))]).mean())) < 1e-3",
        "True",
    ),
    Case(
        6,
        "Of a mean image and means by channel one won, which one by version; natively both count.",
        "alike(old(mean_img=at.folder / 'old.bin'), old(mean_img=at.folder / 'old.bin', mean_r=9))",
        "True",
        "np.array_equal(pixels(native(Crop((12, 16)), Normalize(np.full((3, 12, 16), 5)), "
        "Normalize([9, 0, 0]))), pixels(native(Crop((12, 16)))) - np.float32([14, 5, 5]))",
        "True",
    ),
    Case(
        7,
        "A misspelt parameter was passed over.",
        "old(batchsize=3, rand_crp=True).batch_size",
        "4",
        "native(rand_crp=True)",
        "raises OptionError",
    ),
    Case(
        8,
        "In the seed's day several labels in a record were not seen: the picture behind them "
        "could not be decoded.",
        "old(version='seed', path_imgrec=at.multi)",
        "raises OSError",
        "native(path=at.multi).provide_label",
        "[('labels', (4, 2))]",
    ),
    Case(
        9,
        "A list gives labels; it selects no records, nor did an index.",
        "sum(map(len, epochs(old(path_imglist=at.lst), 1)[0]))",
        "12",
        "labeled.open_dataset(at.rec, splits={'some': at.lst}).splits['some']['labels']",
        "12",
    ),
    Case(
        10,
        "With round_batch epochs begin behind the rows that filled up the last batch ...",
        "epochs(old('ImageRecordIter', batch_size=5), 2)",
        "[[[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 0, 1, 2]], [[3, 4, 5, 6, 7], "
        "[8, 9, 10, 11, 0]]]",
        "epochs(native(batch_size=5, roll_over=True), 2)",
        "[[[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 0, 1, 2]], [[0, 1, 2, 3, 4], "
        "[5, 6, 7, 8, 9], [10, 11, 0, 1, 2]]]",
    ),
    Case(
        10,
        "... also after a reset() of an iterator that was not used ...",
        "(lambda it: (it.reset(), epochs(it, 1)[0][0])[1])(old(batch_size=5))",
        "[3, 4, 5, 6, 7]",
        "(lambda p: (iter(p), epochs(p, 1)[0][0])[1])(native(batch_size=5))",
        "[0, 1, 2, 3, 4]",
    ),
    Case(
        10,
        "... a batch of all and one more shifts by one each time, until an epoch is empty ...",
        "[[b.pad for b in it] + [it.reset()][:0] for it in [old('CSVIter', batch_size=13)] * 13]"
        "[10:]",
        "[[11], [12], []]",
        "[b.count_samples for b in providers.ArrayDataProvider(np.arange(12), batch_size=13, "
        "roll_over=True)]",
        "[12]",
    ),
    Case(
        10,
        "... and one that takes rows of more than two passes is an error.",
        "old('CSVIter', batch_size=25)",
        "raises ValueError",
        "providers.ArrayDataProvider(np.arange(12), batch_size=25, roll_over=True).provide_data",
        "[('data', (25,))]",
    ),
    Case(
        11,
        "Without round_batch the last batch keeps rows of the one before, and 1.9.1 does not say "
        "how many.",
        "[(b.label[0].astype(int).tolist(), b.pad) for b in old(batch_size=5, round_batch=False)]"
        "[-1]",
        "([10, 11, 7, 8, 9], 0)",
        "[(b.label[0].astype(int).tolist(), b.count_samples) for b in native(batch_size=5)][-1]",
        "([10, 11, 0, 0, 0], 2)",
    ),
    Case(
        12,
        "Batches of an ArrayDataProvider share one buffer.",
        "(lambda one, two: (one.data[0].tolist(), two.data[0].tolist(), one.data[0] is "
        "two.data[0]))(*mxnet.ArrayDataProvider(np.arange(4), batch_size=2))",
        "([0.0, 1.0], [2.0, 3.0], True)",
        "[b.data[0].tolist() for b in list(providers.ArrayDataProvider(np.arange(4), "
        "batch_size=2))]",
        "[[0, 1], [2, 3]]",
    ),
    Case(
        13,
        "Everything becomes float32, and whole numbers lose their last digits.",
        "int(mxnet.ArrayDataProvider(np.array([2**24 + 1])).next().data[0][0])",
        "16777216",
        "int(pixels(providers.ArrayDataProvider(np.array([2**24 + 1])))[0])",
        "16777217",
    ),
    Case(
        14,
        "A batch larger than the data is refused.",
        "mxnet.ArrayDataProvider(np.arange(3), batch_size=4)",
        "raises ValueError",
        "[b.count_samples for b in providers.ArrayDataProvider(np.arange(3), batch_size=4)]",
        "[3]",
    ),
    Case(
        15,
        "Numbers in text are not rounded correctly: 2.36 is read as the float next to it ...",
        "float(floats_of([b'2.36'], '1.9.1')[0])",
        "2.3600001335144043",
        "float(np.float32('2.36'))",
        "2.359999895095825",
    ),
    Case(
        15,
        "... and exponents beyond 38 are cut.",
        "float(floats_of([b'1e39'], '1.9.1')[0])",
        "1.0000000694406173e+38",
        "float('1e39')",
        "1e+39",
    ),
    Case(
        16,
        "Parts are stretches of bytes: their lengths differ ...",
        "[sum(map(len, epochs(old(num_parts=5, part_index=k, batch_size=1), 1)[0])) "
        "for k in range(5)]",
        "[3, 2, 3, 2, 2]",
        "[native(shard=(k, 5)).n_samples for k in range(5)]",
        "[2, 2, 3, 2, 3]",
    ),
    Case(
        16,
        "... some may be empty, and fail.",
        "old(num_parts=40, part_index=1, batch_size=1)",
        "raises ValueError",
        "[len(native(shard=(k, 40))) for k in (0, 39)]",
        "[0, 1]",
    ),
    Case(
        17,
        "The seed of 1.9.1 governs the order alone: what is drawn for pictures is the same for "
        "every seed.",
        "alike(old(rand_crop=True, seed=1), old(rand_crop=True, seed=2))",
        "True",
        "alike(native(RandomCrop(12), seed=1), native(RandomCrop(12), seed=2))",
        "False",
    ),
    Case(
        18,
        "Row numbers of a batch are not reported by 1.9.1.",
        "old().next().index.tolist()",
        "[0, 0, 0, 0]",
        "next(iter(native())).rows.tolist()",
        "[0, 1, 2, 3]",
    ),
    Case(
        19,
        "One loop at a time: a loop within a loop takes the batches of the outer one.",
        "(lambda p: [b.start for a in p for b in p])(mxnet.ArrayDataProvider(np.arange(4), "
        "batch_size=2))",
        "[0, 2]",
        "(lambda p: [b.rows[0].item() for a in p for b in p])(providers.ArrayDataProvider("
        "np.arange(4), batch_size=2))",
        "[0, 2, 0, 2]",
    ),
    Case(
        20,
        "A picture that cannot be decoded ended the whole process in most versions; here it is "
        "an error in both.",
        "old(path_imgrec=at.bad, batch_size=1)",
        "raises OSError",
        "list(labeled.open_dataset(at.bad).batches(1))",
        "raises ReadError",
    ),
]

HEAD = """# Traps: the rules of MXNet's iterators and the native ones side by side

Every line is a test: both expressions are evaluated, and give what stands below them. `old(...)` is
an `ImageRecordIter` (or the class named) of `labeled.compat.mxnet`, of version 1.9.1 where none is
given, over a file of twelve pictures with the labels 0 to 11; `native(...)` is `as_provider` of
`labeled.open_dataset` on the same file (or the `path` given), and with transforms of
`labeled.transforms` an `IteratorProvider` around `batches` with these in their pipeline. `epochs`
lists labels by epoch and batch, `pixels` is the first batch. Lines of one number belong together.
This page is printed from the tests' own table by `python tests/mxnet_traps.py`.

| | trap | `labeled.compat.mxnet` | `labeled.providers` |
| --- | --- | --- | --- |
"""

OLD_KINDS = (TypeError, OSError, ValueError)
MXNET = Traps(DOCS / "traps_mxnet.md", HEAD, CASES, range(1, 21), names, outcome, OLD_KINDS)

if __name__ == "__main__":
    MXNET.write()
