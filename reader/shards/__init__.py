"""Datasets of files that hold many samples each, and the orders to read them in."""
