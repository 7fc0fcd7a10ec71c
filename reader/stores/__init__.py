"""Files by their paths: of this machine, and in object stores, which one process fetches."""
