"""Image files as arrays, and datasets of folders of them (the extra `images`).

The public names live here. Importing this package imports no decoder: simplejpeg and Pillow are
imported when the first image is decoded.
"""

from reader.errors import ImageError
from reader.images.crops import CenterCrop, RandomResizedCrop
from reader.images.encoded_image import decode, image_size
from reader.images.image_folder import ImageFolder

__all__ = [
    "CenterCrop",
    "ImageError",
    "ImageFolder",
    "RandomResizedCrop",
    "decode",
    "image_size",
]
