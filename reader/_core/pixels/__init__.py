"""Pixels: how parts of images are decoded, resized and laid out as a batch wants them."""
