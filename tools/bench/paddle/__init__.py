"""The Paddle rows of the benchmark: what only a Paddle program sees of its loader.

Run as ``python -m tools.bench.paddle``. Only what runs in a contestant's process imports paddle,
or the package that is measured.
"""
