"""Streams that wrap others or divide them: mix, shuffle_buffer, rebatch, shard."""
