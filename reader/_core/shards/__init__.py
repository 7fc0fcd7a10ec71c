"""What is read of shards: the members of a tar file, and messages of protobuf."""
