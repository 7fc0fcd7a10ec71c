"""Random numbers: seeds by key, the global random state as a value, shuffled orders."""
