"""The order of an epoch's batches: begun, replayed, divided, saved and reopened."""
