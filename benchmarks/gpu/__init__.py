"""What a GPU gets of all this: copies, permutes, files to batches, overlap, a cluster.

    python -m benchmarks.gpu [--gib 2] [--only PART] [--out benchmarks/results/gpu.json]
    python -m benchmarks.gpu --host --gib 0.05     # tries the script; says nothing of a GPU

Runs alone, from the folder of the repository, and needs one GPU, on which nothing else runs, CuPy
with NVRTC, and what labeled itself needs. Where something else is missing (distributed, dask-cuda,
torch, what a test imports), its part or row says so, and the others go on. Two GiB a file and eight
minutes are enough for all parts; ``--limit-s`` bounds them, and what there is no time for is told.
They come in the order of their worth, so a second run takes those that are missing: ``--only
cluster --only latency``. Tests alone are ``pytest -m gpu``.

Every part runs in a process of its own, so that one that fails, dies or takes too long costs no
other, and no row of it that was measured before; processes that it leaves behind are ended. JSON is
written after each of them. Files are smaller than asked for where disk, memory or GPU are small.

Every figure is a median of repeats with the device waited for on both sides; rates of batches
are those of whole epochs from the page cache, with a consumer that adds up every element on the
device. The bounds are measured in the same run: pinned memory to device, and device to device.
torch's loader is measured where it is installed.
"""
