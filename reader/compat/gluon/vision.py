"""`mx.gluon.data.vision`, name for name: datasets of images.

Imports the datasets of this face. It has no state of its own.
"""

from reader.compat.gluon.image_archives import CIFAR10, CIFAR100, MNIST, FashionMNIST
from reader.compat.gluon.image_datasets import (
    ImageFolderDataset,
    ImageListDataset,
    ImageRecordDataset,
)

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "FashionMNIST",
    "ImageFolderDataset",
    "ImageListDataset",
    "ImageRecordDataset",
]
