"""Streams that wrap others, and how one is divided: mix, shuffle_buffer, rebatch, shard."""
