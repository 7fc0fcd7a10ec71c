"""What works on the project and is not in its wheel: checks, smoke test, bench and demo."""
