"""Files that lie in object stores, fetched by one process of a machine."""
