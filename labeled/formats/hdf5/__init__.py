"""HDF5: headers through h5py, payload by byte range."""
