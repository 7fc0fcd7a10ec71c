"""Programs that are each bound by something else, and whether a profile says by what."""
