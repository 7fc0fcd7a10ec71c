"""Documents of tokens, from arrays, files and shards."""
