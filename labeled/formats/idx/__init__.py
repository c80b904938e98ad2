"""IDX files: one array each, big-endian, as the MNIST digits are kept; plain or gzip-compressed."""
