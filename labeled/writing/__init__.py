"""Making files of examples: from arrays and lazy arrays, with splits, whole or not at all."""
