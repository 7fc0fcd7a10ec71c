"""The package as a user gets it: sdist and wheel, installed and run outside the checkout."""
