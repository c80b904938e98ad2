"""What users open and hold: the dataset, and the doors of xarray.

`opening` makes a `dataset` of `files`, which are joined there. Its methods that are long are
`selecting` (splits, labels and ``train_test_split``), `to_xarray` (over lazy arrays) and
`summary`. `accessor` and `xarray_engine` are xarray's doors, and `convert` leads to files.
"""
