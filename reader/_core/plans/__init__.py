"""Loops of plans: which samples make the batches of a step."""
