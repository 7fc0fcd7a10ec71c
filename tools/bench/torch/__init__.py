"""The PyTorch rows of the benchmark: what only a PyTorch program sees of its loader.

Run as ``python -m tools.bench.torch``. Only what runs in a contestant's process imports torch, or
the package that is measured.
"""
