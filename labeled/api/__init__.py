"""The doors users come through: opening, the dataset, xarray's engine and accessor.

`opening` makes a `dataset`, whose methods are told in `choosing` (splits and names), `by_label`
(``sel``), `held` (sources as a dataset holds them), `labelled` (xarray objects), `dividing`
(``train_test_split``), `measured` (statistics), `looks` and `plots`. `accessor` and
`xarray_engine` are xarray's doors, `converting` and `doctoring` those to files, `placing` and
`shares` those to devices and to several consumers.
"""
