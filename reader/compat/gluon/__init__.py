"""Gluon, name for name, on the engine of `reader`."""
