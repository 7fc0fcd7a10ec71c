"""Works from tiny to JPEG files, at fixed numbers of workers and at those that "auto" finds."""
