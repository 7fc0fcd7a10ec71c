"""Tests: a package, so that a class in a test can be found again by a spawned worker."""
