"""Mixes of datasets, and streams that wrap others or divide them."""
