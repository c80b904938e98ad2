"""The doors users come through: opening, the dataset, xarray's engine and accessor."""
