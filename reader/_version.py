"""The version of the distribution, kept here alone.

pyproject.toml reads it without importing the package, and a test holds it equal to the newest
entry of CHANGELOG.md. Imports nothing.
"""

__version__ = "0.1.0"
