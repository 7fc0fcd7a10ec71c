"""Tools of the project that its wheel lacks: checks, smoke test, bench and demo."""
