"""Pictures of docs/ that are drawn from runs: an epoch's timeline, the life of a slot."""
