"""Collating: how samples become the rows of a batch."""
