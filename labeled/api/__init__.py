"""The doors users come through: opening, the dataset, xarray's engine and accessor.

`opening` makes a `dataset`, whose methods are in `choosing` (splits, names, labels and
``train_test_split``), `held` (sources as a dataset holds them), `labelled` (xarray objects),
`measured` (statistics), `looks` and `plots`. `accessor` and `xarray_engine` are xarray's doors,
`converting` and `doctoring` those to files, `shares` the one to several consumers.
"""
