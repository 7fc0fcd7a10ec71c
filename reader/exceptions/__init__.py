"""Exceptions of workers on their way to the user's loop."""
