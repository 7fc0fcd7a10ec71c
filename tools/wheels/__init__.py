"""Wheels of a release, each tried in empty environments before it is kept."""
