"""What users open and hold: the dataset, and the doors of xarray.

`opening` makes a `dataset` of `files`, which `compatible` says can be joined. The methods of a
dataset are in `selecting` (splits, names, labels and ``train_test_split``), `held` (what it
holds), `to_xarray` (over arrays that are `lazy`, in blocks that `chunking` decides on),
`statistics`, `summary` and `plots`. `accessor` and `xarray_engine` are xarray's doors, `convert`
and `doctor` lead to files, `sharding` to several consumers of one epoch.
"""
