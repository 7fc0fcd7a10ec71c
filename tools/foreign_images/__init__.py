"""Image files made by other programs than Pillow, and `reader.images` beside a reference on each.

Run as ``python -m tools.foreign_images --folder DIR``.
"""
