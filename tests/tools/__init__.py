"""Tests of the tools: they need the built package, which does not need them."""
