"""The documentation site: settings, look, and the transformation of pages for it."""
