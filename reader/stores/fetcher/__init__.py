"""What runs in the process that fetches: it alone talks to the network."""
