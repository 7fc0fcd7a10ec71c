"""The documentation site: settings, look, and what is made of the pages for it."""
