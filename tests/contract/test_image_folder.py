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
from reader.images import (
    CenterCrop,
    ColorJitter,
    Compose,
    ImageFolder,
    Normalize,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    decode,
)

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
    assert folder.imgs is folder.samples
    assert len(folder) == 6
    image, number = folder[1]
    assert (image.shape, number) == ((40, 60, 3), 0)
    assert (image == decode(root / "cat/b.jpg")).all()
    assert len(ImageFolder(str(root), extensions=[".jpg", ".JPEG"])) == 5
    assert len(ImageFolder(str(root), extensions=".jpeg", allow_empty=True)) == 2


KINDS = ["jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"]


def test_every_kind_that_torchvision_lists_is_listed_and_read(tmp_path: Path, cell: Cell) -> None:
    for number, kind in enumerate(KINDS):
        save(tmp_path / kind[0] / f"a.{kind}", 20 + number, 30 - number, number)
    folder = ImageFolder(tmp_path, size=(8, 8))
    assert folder.classes == sorted({kind[0] for kind in KINDS})
    assert sorted(Path(path).suffix[1:] for path, _ in folder.samples) == sorted(KINDS)
    with DataLoader(folder, batch_size=len(KINDS), **cell) as loader:
        images, numbers = next(iter(loader))
    assert numbers.tolist() == folder.targets
    for (path, _), row in zip(folder.samples, images):
        assert (row == decode(path, size=(8, 8))).all()
        with Image.open(path) as opened:
            assert (decode(path) == np.asarray(opened.convert("RGB"))).all()


def test_images_of_other_endings_are_counted_and_named(root: Path) -> None:
    for name in ("cat/one.gif", "dog/two.GIF", "dog/three.avif", "dog/four.txt"):
        (root / name).touch()
    said = r"in': 3 files \.avif, \.gif left out, such as '.*cat/one.gif': .* Pass extensions="
    with pytest.warns(UserWarning, match=said) as warned:
        assert len(ImageFolder(root)) == 6
    assert [each.filename for each in warned] == [__file__]
    assert len(ImageFolder(root, extensions=(".jpg", ".jpeg", ".gif"))) == 7
    assert (
        len(ImageFolder(root, is_valid_file=lambda path: path.endswith(".txt"), allow_empty=True))
        == 2
    )
    assert len(ImageFolder(root, extensions=[f".{kind}" for kind in KINDS])) == 6  # no warning
    only = root / "fox/only.gif"
    save(only, 4, 5, 0)
    said = r"of 4 classes in '.*in' 1 have no file that ends in .jpg, .*: fox; 4 have other endings"
    with pytest.raises(ConfigError, match=said):
        ImageFolder(root)
    assert ImageFolder(root, extensions=".gif", allow_empty=True)[-1][0].shape == (4, 5, 3)


def test_files_that_macos_adds_are_no_images(root: Path) -> None:
    (root / "__MACOSX/cat").mkdir(parents=True)
    (root / "__MACOSX/cat/._a.jpg").write_bytes(b"\0\5\x16\7more")
    (root / "cat/._a.jpg").write_bytes(b"\0\5\x16\7more")
    (root / "cat/.DS_Store").touch()
    save(root / "cat/._real.jpg", 8, 8, 1)
    save(root / "cat/.hidden.png", 8, 8, 1)
    with pytest.warns(UserWarning, match="macOS") as warned:
        folder = ImageFolder(root)
    told = sorted(str(each.message) for each in warned)
    assert len(told) == 2
    assert "has a folder __MACOSX, which is no class" in told[0]
    assert "1 file ._name left out, such as" in told[1]
    assert "cat/._a.jpg'" in told[1]
    assert folder.classes == ["cat", "dog", "eel"]
    names = [Path(path).name for path, number in folder.samples if number == 0]
    assert names == ["._real.jpg", ".hidden.png", "a.JPEG", "b.jpg", "c.jpg"]


def test_links_are_followed_unless_they_lead_back(root: Path, tmp_path: Path) -> None:
    plain = ImageFolder(root).samples
    save(tmp_path / "elsewhere/deep/far.png", 8, 8, 1)
    (root / "cat/more").symlink_to(tmp_path / "elsewhere")
    (root / "eel/same.jpg").symlink_to(root / "dog/y.jpg")
    (root / "eel/gone.jpg").symlink_to(root / "nothing.jpg")
    (root / "fox").symlink_to(root / "dog")
    listed = ImageFolder(root).samples
    assert {Path(path).name for path, _ in set(listed) - set(plain)} == {
        *("far.png", "same.jpg", "gone.jpg", "x.png", "y.jpg")
    }
    (root / "cat/inner/up").symlink_to(root / "cat")
    (root / "cat/above").symlink_to(tmp_path)
    (root / "dog/eel").symlink_to(root / "eel")
    (root / "eel/dog").symlink_to(root / "dog")
    with pytest.warns(UserWarning, match=r"links not followed, such as .*lead back to a folder"):
        again = ImageFolder(root).samples
    assert [each for each in again if each in listed] == listed
    more = {str(Path(path).relative_to(root)) for path, _ in set(again) - set(listed)}
    assert more == {
        *("dog/eel/z.jpeg", "dog/eel/same.jpg", "dog/eel/gone.jpg"),
        *("eel/dog/x.png", "eel/dog/y.jpg"),
        *("fox/eel/z.jpeg", "fox/eel/same.jpg", "fox/eel/gone.jpg"),
    }


def test_a_subclass_chooses_the_classes(root: Path) -> None:
    class Two(ImageFolder):
        def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
            names, _ = super().find_classes(directory)
            return names[1:], {name: 10 + k for k, name in enumerate(names[1:])}

    assert Two(root).classes == ["dog", "eel"]
    assert Two(root).targets == [10, 10, 11]

    class Missing(ImageFolder):
        def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
            return ["none"], {"none": 0}

    with pytest.raises(ConfigError, match=r"of 1 classes in .* 1 have no file .*: none. Put"):
        Missing(root)
    assert len(Missing(root, allow_empty=True)) == 0

    class Nothing(ImageFolder):
        def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
            return [], {}

    with pytest.raises(ConfigError, match=r"Nothing.find_classes found no class in"):
        Nothing(root)


def test_classes_without_files_are_named_or_allowed(root: Path) -> None:
    for number in range(12):
        (root / f"empty{number:02}").mkdir()
    with pytest.raises(ConfigError, match=r"15 classes .* 12 have no file .*empty09 and 2 more"):
        ImageFolder(root)
    folder = ImageFolder(root, allow_empty=True)
    assert len(folder.classes) == 15
    assert folder.targets == [0, 0, 0, 1, 1, 2]
    taken = ImageFolder(root, is_valid_file=lambda path: path.endswith("b.jpg"), allow_empty=True)
    assert [Path(path).name for path, _ in taken.samples] == ["b.jpg"]
    with pytest.raises(ConfigError, match="15 have no file that is_valid_file takes: cat, "):
        ImageFolder(root, is_valid_file=lambda path: False)


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


TRAINING = [
    RandomResizedCrop(),
    RandomHorizontalFlip(),
    ColorJitter(0.4, 0.4, 0.4, 0.1),
    RandAugment(),
    Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    RandomErasing(0.5),
]


def training(root: Path, **options: Any) -> ImageFolder:
    options = {"size": (16, 20), "transforms": TRAINING, "layout": "channels_first"} | options
    return ImageFolder(root, **options)


def test_transformed_pictures_are_those_of_any_other_workers(root: Path, each_cell: Cell) -> None:
    def epochs(**options: Any) -> list[Any]:
        with DataLoader(training(root), batch_size=4, shuffle=True, seed=3, **options) as loader:
            return [[images.copy() for images, _ in loader] for _ in range(2)]

    found, wanted = epochs(**each_cell), epochs(num_workers=0)
    for batches, others in zip(found, wanted, strict=True):
        for images, other in zip(batches, others, strict=True):
            assert images.dtype == np.float32
            assert images.shape[1:] == (3, 16, 20)
            assert (images == other).all()
    assert (found[0][0] != found[1][0]).any()


def test_transformed_pictures_are_those_of_a_run_that_was_not_interrupted(
    root: Path, cell: Cell
) -> None:
    options = {"batch_size": 2, "shuffle": True, "seed": 3}
    with DataLoader(training(root), num_workers=0, **options) as loader:
        wanted = [images.copy() for images, _ in loader]
    for stop in range(1, 3):
        with DataLoader(training(root), **options, **cell) as loader:
            batches = iter(loader)
            for _ in range(stop):
                next(batches)
            state = loader.state_dict()
        with DataLoader(training(root), **options, num_workers=1) as loader:
            loader.load_state_dict(state)
            rest = [images.copy() for images, _ in loader]
        assert all((a == b).all() for a, b in zip(rest, wanted[stop:], strict=True))


def test_a_transformed_picture_is_that_of_the_list_alone(root: Path) -> None:
    steps = [Resize(24), CenterCrop((16, 20)), Normalize(0.5, 0.25)]
    folder = ImageFolder(root, transforms=steps, dtype="float16")
    for index, (path, _) in enumerate(folder.samples):
        assert (folder[index][0] == Compose(steps, dtype="float16").apply(path)).all()


def test_a_transformed_picture_is_written_into_its_row(root: Path) -> None:
    folder = training(root)
    row = np.zeros((2, 3, 16, 20), np.float32)[1]
    assert folder.__getitem__(1, (row, None))[0] is row
    for other in (np.zeros((16, 20, 3), np.float32), np.zeros((3, 16, 20), np.float64)):
        assert folder.__getitem__(1, (other, None))[0] is not other
        assert not other.any()


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


def test_images_of_several_sizes_are_reported(root: Path, cell: Cell) -> None:
    with (
        DataLoader(ImageFolder(root), batch_size=4, **cell) as loader,
        pytest.raises(CollateError, match=r"shape .40, 60, 3. .* .41, 59, 3."),
    ):
        list(loader)


def test_transforms_may_replace_image_and_number(root: Path, cell: Cell) -> None:
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
            ImageError, match=r"dog/y.jpg' is (a damaged JPEG|none of JPEG, PNG, BMP)"
        ):
            next(batches)
        assert list(batches) == []


def test_a_missing_file_is_named(root: Path, cell: Cell) -> None:
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
        ({"root": "none"}, ConfigError, "no folder '.*none': pass the folder that holds one"),
        ({"root": "eel"}, ConfigError, "holds no folder: put the images in one for each class"),
        ({"extensions": [".png"]}, ConfigError, "2 have no file that ends in .png: cat, eel. Put"),
        ({"extensions": 3}, ConfigTypeError, "extensions must be endings of file names, such as"),
        ({"extensions": [1]}, ConfigTypeError, "extensions must be endings of file names, such as"),
        ({"extensions": ()}, ConfigTypeError, "extensions must be endings of file names, such as"),
        ({"is_valid_file": 3}, ConfigTypeError, "is_valid_file must be a function"),
        (
            {"is_valid_file": len, "extensions": ".png"},
            ConfigError,
            "extensions and is_valid_file exclude each other",
        ),
        ({"mode": "RGBA"}, ConfigError, "mode must be"),
        ({"size": 224}, ConfigTypeError, "size must be"),
        ({"size": (0, 1)}, ConfigError, "is no size of an image"),
        ({"crop": (0, 0, 1, 1)}, ConfigTypeError, "crop must be a function or None"),
        ({"transform": 3}, ConfigTypeError, "transform must be a function"),
        (
            {"transform": RandomHorizontalFlip()},
            ConfigTypeError,
            r"pass transforms=\[RandomHorizontalFlip",
        ),
        ({"transforms": [3]}, ConfigTypeError, "transforms must hold objects such as"),
        ({"transforms": [], "crop": CenterCrop()}, ConfigError, "crop and transforms exclude"),
        ({"layout": "CHW"}, ConfigError, "layout must be one of"),
        ({"dtype": "int32"}, ConfigError, "dtype must be one of"),
        ({"target_transform": "x"}, ConfigTypeError, "target_transform must be a function"),
    ],
)
def test_invalid_arguments_are_refused(
    root: Path, change: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ImageFolder(root / change.pop("root", ""), **change)


@pytest.mark.parametrize("cache", [None, "1MB"])
def test_a_folder_decodes_at_the_full_size_with_exact(cache: str | None, root: Path) -> None:
    path = root / "cat" / "b.jpg"
    save(path, 300, 400, seed=3)
    options: dict[str, Any] = {"transforms": [Resize((20, 30))], "cache": cache}
    exact = ImageFolder(root, exact=True, **options)
    number = [name for name, _ in exact.samples].index(str(path))
    for _ in range(2):
        assert (exact[number][0] == decode(path, size=(20, 30), exact=True)).all()
    scaled = ImageFolder(root, **options)
    assert (scaled[number][0] == decode(path, size=(20, 30))).all()
    assert not (scaled[number][0] == exact[number][0]).all()


def test_a_folder_is_named_by_a_path() -> None:
    with pytest.raises(ConfigTypeError, match="root must be the path of a folder, got None"):
        ImageFolder(None)  # type: ignore[arg-type]


def test_a_random_crop_is_a_crop(root: Path) -> None:
    folder = ImageFolder(root, crop=RandomCrop(20, padding=4))
    assert folder[0][0].shape == (20, 20, 3)


def test_a_crop_that_leaves_the_image_is_refused_by_name(root: Path) -> None:
    folder = ImageFolder(root, crop=lambda height, width, rng: (0, 0, height + 1, width))
    with pytest.raises(ConfigError, match=r"does not lie within '.*a.JPEG', which has 41 x 59"):
        folder[0]


def test_content_is_decoded_without_a_file(root: Path) -> None:
    content = io.BytesIO((root / "cat/b.jpg").read_bytes())
    assert (decode(content.getbuffer()) == decode(root / "cat/b.jpg")).all()


def test_samples_are_pure_if_no_function_of_the_user_makes_them(root: Path) -> None:
    class Own(ImageFolder):
        def __getitem__(self, index: int, out: Any = None) -> tuple[Any, Any]:
            return super().__getitem__(index, out)

    assert has_pure_samples(ImageFolder(root))
    assert has_pure_samples(ImageFolder(root, crop=RandomResizedCrop()))
    assert has_pure_samples(ImageFolder(root, crop=CenterCrop()))
    assert has_pure_samples(training(root))
    for folder in (
        ImageFolder(root, crop=lambda height, width, rng: (0, 0, 1, 1)),
        ImageFolder(root, transform=negative),
        ImageFolder(root, transforms=[negative]),
        ImageFolder(root, target_transform=doubled),
        Own(root),
    ):
        assert not has_pure_samples(folder)
    told = ImageFolder(root, transform=negative)
    told.has_pure_samples = True
    assert has_pure_samples(told)
