"""Shared: memory that several processes read, and what lies in it."""
