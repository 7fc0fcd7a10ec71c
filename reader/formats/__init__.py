"""Datasets that read files of known formats: tables, flat files of tokens, files of records."""
