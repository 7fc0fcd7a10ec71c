"""Documents of tokens: pieces of them gathered into rows."""
