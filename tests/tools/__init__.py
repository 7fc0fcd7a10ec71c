"""Tests of the tools: they need the package built, and nothing of it needs them."""
