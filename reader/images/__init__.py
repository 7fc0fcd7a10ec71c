"""Image files as arrays, transforms of them, and datasets of folders of them (the extra `images`).

The public names live here. Importing this package imports no decoder: simplejpeg and Pillow are
imported when the first image is decoded.
"""

from reader.errors import ImageError
from reader.images.auto_augment import RandAugment, TrivialAugmentWide
from reader.images.color_jitter import ColorJitter, RandomGrayscale
from reader.images.compose import Compose
from reader.images.crops import CenterCrop, RandomCrop, RandomResizedCrop
from reader.images.encoded_image import decode, image_size
from reader.images.erasing import RandomErasing
from reader.images.flips import RandomHorizontalFlip, RandomVerticalFlip
from reader.images.image_folder import ImageFolder
from reader.images.mixing import CutMix, MixUp
from reader.images.normalize import Normalize
from reader.images.resize import Resize

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "CutMix",
    "ImageError",
    "ImageFolder",
    "MixUp",
    "Normalize",
    "RandAugment",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "TrivialAugmentWide",
    "decode",
    "image_size",
]
