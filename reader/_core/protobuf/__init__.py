"""Messages of protobuf, read where they lie."""
