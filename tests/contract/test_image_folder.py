"""Folders of images through the loader: layout, rows, augmentation, workers, and bad files."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import CollateError, ConfigError, ConfigTypeError, DataLoader, ImageError
from reader.data.pure_samples import has_pure_samples
from reader.images import CenterCrop, ImageFolder, RandomResizedCrop, decode

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("simplejpeg")

Cell = dict[str, Any]
NAMES = ["cat/b.jpg", "cat/a.JPEG", "cat/inner/c.jpg", "dog/x.png", "dog/y.jpg", "eel/z.jpeg"]


def save(path: Path, height: int, width: int, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    small = np.random.default_rng(seed).integers(0, 256, (5, 4, 3), np.uint8)
    Image.fromarray(small).resize((width, height), Image.BICUBIC).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number, name in enumerate(NAMES):
        save(tmp_path / "in" / name, 40 + number, 60 - number, number)
    (tmp_path / "in/cat/notes.txt").touch()
    (tmp_path / "in/readme").touch()
    return tmp_path / "in"


def negative(image: Any) -> Any:
    return 255 - image


def doubled(number: int) -> int:
    return 2 * number


def test_the_layout_is_the_usual_one(root: Path) -> None:
    folder = ImageFolder(root)
    assert folder.classes == ["cat", "dog", "eel"]
    assert folder.class_to_idx == {"cat": 0, "dog": 1, "eel": 2}
    order = ["cat/a.JPEG", "cat/b.jpg", "cat/inner/c.jpg", "dog/x.png", "dog/y.jpg", "eel/z.jpeg"]
    assert folder.samples == [
        (str(root / name), number) for name, number in zip(order, [0, 0, 0, 1, 1, 2])
    ]
    assert folder.targets == [0, 0, 0, 1, 1, 2]
    assert len(folder) == 6
    image, number = folder[1]
    assert (image.shape, number) == ((40, 60, 3), 0)
    assert (image == decode(root / "cat/b.jpg")).all()
    assert len(ImageFolder(str(root), extensions=[".jpg", ".JPEG"])) == 5


def test_each_worker_decodes_the_same_batches(root: Path, each_cell: Cell) -> None:
    folder = ImageFolder(root, size=(16, 20))
    with DataLoader(folder, batch_size=4, **each_cell) as loader:
        batches = list(loader)
    found = np.concatenate([images for images, _ in batches])
    assert found.dtype == np.uint8
    assert (found == np.stack([folder[index][0] for index in range(6)])).all()
    assert np.concatenate([numbers for _, numbers in batches]).tolist() == folder.targets


def test_random_crops_follow_the_seed(root: Path, cell: Cell) -> None:
    folder = ImageFolder(root, size=(16, 16), crop=RandomResizedCrop())

    def epochs(seed: int, **options: Any) -> list[Any]:
        with DataLoader(folder, batch_size=4, seed=seed, **options) as loader:
            return [np.concatenate([images for images, _ in loader]) for _ in range(2)]

    first, second = epochs(1, **cell)
    again, _ = epochs(1, num_workers=0)
    other, _ = epochs(2, num_workers=0)
    assert (first == again).all()
    assert (first != second).any()
    assert (first != other).any()


def test_a_sample_outside_of_a_loader_is_cropped_too(root: Path) -> None:
    assert ImageFolder(root, size=(8, 8), crop=RandomResizedCrop())[0][0].shape == (8, 8, 3)
    image, _ = ImageFolder(root, crop=CenterCrop(), mode="L")[1]
    assert image.shape == (35, 35, 1)


def test_a_row_is_written_in_place(root: Path) -> None:
    folder = ImageFolder(root, size=(16, 16))
    row = np.zeros((2, 16, 16, 3), np.uint8)[1]
    image, number = folder.__getitem__(1, (row, None))
    assert image is row
    assert number == 0
    assert (row == folder[1][0]).all()
    again, _ = folder.__getitem__(1, out=None)
    assert again is not row


def test_a_row_of_another_form_is_left_alone(root: Path) -> None:
    folder = ImageFolder(root)
    row = np.full((40, 60, 3), 7, np.uint8)
    image, _ = folder.__getitem__(0, (row, None))
    assert image.shape == (41, 59, 3)
    assert (row == 7).all()
    turned = ImageFolder(root, size=(8, 8), transform=negative)
    row = np.full((8, 8, 3), 7, np.uint8)
    assert turned.__getitem__(0, (row, None))[0] is not row
    assert (row == 7).all()


def test_images_of_several_sizes_are_told(root: Path, cell: Cell) -> None:
    with (
        DataLoader(ImageFolder(root), batch_size=4, **cell) as loader,
        pytest.raises(CollateError, match=r"shape .40, 60, 3. .* .41, 59, 3."),
    ):
        list(loader)


def test_transforms_take_the_place_of_image_and_number(root: Path, cell: Cell) -> None:
    plain = ImageFolder(root, size=(8, 8))
    folder = ImageFolder(root, size=(8, 8), transform=negative, target_transform=doubled)
    with DataLoader(folder, batch_size=6, **cell) as loader:
        images, numbers = next(iter(loader))
    assert (images == 255 - np.stack([plain[index][0] for index in range(6)])).all()
    assert numbers.tolist() == [0, 0, 0, 2, 2, 4]


@pytest.mark.parametrize("damage", ["cut off", "another kind"])
def test_a_bad_file_is_named_and_the_loop_goes_on(root: Path, cell: Cell, damage: str) -> None:
    path = root / "dog/y.jpg"
    path.write_bytes(path.read_bytes()[:-100] if damage == "cut off" else b"<html>")
    with DataLoader(ImageFolder(root, size=(8, 8)), batch_size=2, **cell) as loader:
        batches = iter(loader)
        next(batches)
        next(batches)
        with pytest.raises(
            ImageError, match=r"dog/y.jpg' is (a damaged JPEG|neither JPEG nor PNG)"
        ):
            next(batches)
        assert list(batches) == []


def test_a_file_that_is_gone_is_named(root: Path, cell: Cell) -> None:
    folder = ImageFolder(root, size=(8, 8))
    (root / "cat/a.JPEG").unlink()
    with (
        DataLoader(folder, batch_size=6, **cell) as loader,
        pytest.raises(ImageError, match=r"cat/a.JPEG' cannot be read: .*No such file"),
    ):
        list(loader)


def test_a_folder_survives_pickle(root: Path) -> None:
    folder = ImageFolder(root, size=(8, 8), crop=CenterCrop(), transform=negative)
    again = pickle.loads(pickle.dumps(folder))
    assert again.samples == folder.samples
    assert (again[3][0] == folder[3][0]).all()


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"root": "none"}, ConfigError, "there is no folder '.*none'"),
        ({"root": "eel"}, ConfigError, "holds no folder: put the images in one for each class"),
        ({"extensions": [".png"]}, ConfigError, "cat' holds no file that ends in .png"),
        ({"mode": "RGBA"}, ConfigError, "mode must be"),
        ({"size": 224}, ConfigTypeError, "size must be"),
        ({"size": (0, 1)}, ConfigError, "is no size of an image"),
        ({"crop": (0, 0, 1, 1)}, ConfigTypeError, "crop must be a function or None"),
        ({"transform": 3}, ConfigTypeError, "transform must be a function"),
        ({"target_transform": "x"}, ConfigTypeError, "target_transform must be a function"),
    ],
)
def test_what_cannot_be_is_refused(
    root: Path, change: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ImageFolder(root / change.pop("root", ""), **change)


def test_a_crop_that_leaves_the_image_is_refused_by_name(root: Path) -> None:
    folder = ImageFolder(root, crop=lambda height, width, rng: (0, 0, height + 1, width))
    with pytest.raises(ConfigError, match=r"does not lie within '.*a.JPEG', which has 41 x 59"):
        folder[0]


def test_content_is_decoded_without_a_file(root: Path) -> None:
    content = io.BytesIO((root / "cat/b.jpg").read_bytes())
    assert (decode(content.getbuffer()) == decode(root / "cat/b.jpg")).all()


def test_samples_are_known_to_be_pure_where_no_function_of_the_user_makes_them(root: Path) -> None:
    class Own(ImageFolder):
        def __getitem__(self, index: int, out: Any = None) -> tuple[Any, Any]:
            return super().__getitem__(index, out)

    assert has_pure_samples(ImageFolder(root))
    assert has_pure_samples(ImageFolder(root, crop=RandomResizedCrop()))
    assert has_pure_samples(ImageFolder(root, crop=CenterCrop()))
    for folder in (
        ImageFolder(root, crop=lambda height, width, rng: (0, 0, 1, 1)),
        ImageFolder(root, transform=negative),
        ImageFolder(root, target_transform=doubled),
        Own(root),
    ):
        assert not has_pure_samples(folder)
    told = ImageFolder(root, transform=negative)
    told.has_pure_samples = True
    assert has_pure_samples(told)
