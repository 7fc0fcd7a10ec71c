"""Transforms of images: beside Pillow and NumPy, in one pass and in many, and bad input."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, ConfigTypeError, ImageError
from reader.images import (
    CenterCrop,
    ColorJitter,
    Compose,
    CutMix,
    MixUp,
    Normalize,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    TrivialAugmentWide,
    auto_augment,
    color_changes,
    decode,
)
from reader.images.encoded_image import EncodedImage
from tests.unit.test_images import by_pillow, difference, encoded, photograph

Image = pytest.importorskip("PIL.Image")
ImageEnhance = pytest.importorskip("PIL.ImageEnhance")
ImageOps = pytest.importorskip("PIL.ImageOps")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
EVERY = [
    RandomResizedCrop(24),
    RandomHorizontalFlip(),
    RandomVerticalFlip(),
    ColorJitter(0.4, 0.4, 0.4, 0.1),
    RandomGrayscale(0.3),
    RandAugment(),
    TrivialAugmentWide(),
    RandomCrop(24, padding=3),
    Normalize(MEAN, STD),
    RandomErasing(1.0),
]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# -- one pass, and the same in many -------------------------------------------------------------


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_one_pass_gives_what_numpy_makes_of_the_pixels(layout: str, dtype: str, mode: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    content = encoded(photograph(90, 120))
    views = [RandomResizedCrop((31, 45)), RandomHorizontalFlip(1), RandomVerticalFlip(1)]
    normalize = [] if dtype == "uint8" else [Normalize(MEAN[: 3 if mode == "RGB" else 1], 0.25)]
    found = Compose([*views, *normalize], layout=layout, dtype=dtype, mode=mode).apply(
        content, rng(3)
    )
    top, left, height, width = RandomResizedCrop()(90, 120, rng(3))
    pixels = decode(content, crop=(top, left, height, width), size=(31, 45), mode=mode)
    wanted = pixels[::-1, ::-1]
    if dtype != "uint8":
        mean = np.float32(MEAN[: wanted.shape[2]])
        wanted = (wanted.astype(np.float32) / np.float32(255) - mean) / np.float32(0.25)
    if layout == "channels_first":
        wanted = wanted.transpose(2, 0, 1)
    assert found.dtype.name == dtype
    assert found.flags.c_contiguous
    assert (found == wanted.astype(found.dtype)).all()


def test_floats_without_a_normalize_are_from_0_to_1() -> None:
    found = Compose(dtype="float32").apply(np.array([[[0, 51, 255]]], np.uint8))
    assert found.tolist() == [[[0.0, np.float32(0.2), 1.0]]]


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_an_image_of_a_file_and_its_array_give_the_same(kind: str) -> None:
    content = encoded(photograph(64, 80), kind)
    for seed in range(20):
        once = Compose(EVERY, size=(24, 24)).apply(content, rng(seed))
        again = Compose(EVERY, size=(24, 24)).apply(decode(content), rng(seed))
        if kind == "PNG":
            assert (once == again).all()
        assert once.shape == again.shape == (24, 24, 3)


def test_the_input_is_left_as_it_was_and_numbers_repeat() -> None:
    array = photograph(64, 80)
    before = array.copy()
    for each in (*EVERY, lambda image: image):
        transforms = Compose([each])
        once, again = (transforms.apply(array, rng(5)) for _ in range(2))
        assert (once == again).all()
        once += 1
    assert (array == before).all()


def test_out_is_written_in_place_and_returned() -> None:
    array = photograph(40, 30)
    transforms = Compose(EVERY, layout="channels_first", dtype="float16")
    row = np.zeros((2, 3, 24, 24), np.float16)
    assert transforms.apply(array, rng(1), row[1]) is not None
    assert (row[1] == transforms.apply(array, rng(1))).all()
    assert not row[0].any()


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1), (3, 2)])
def test_the_smallest_images_are_transformed(shape: tuple[int, int]) -> None:
    array = photograph(*shape)
    for seed in range(30):
        assert Compose(EVERY, size=(7, 9)).apply(array, rng(seed)).shape == (7, 9, 3)
    for each in (Resize(5), CenterCrop(5), CenterCrop(), RandomResizedCrop(2)):
        assert Compose([each]).apply(array, rng()).size


# -- beside Pillow ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(90, 120), (120, 90), (70, 70)])
def test_the_usual_test_crop_is_pillows_within_rounding(shape: tuple[int, int]) -> None:
    array = photograph(*shape)
    found = Compose([Resize(48), CenterCrop(40)]).apply(array)
    short, (height, width) = min(shape), shape
    size = (int(48 * height / short), int(48 * width / short))
    image = Image.fromarray(array).resize(size[::-1], Image.BILINEAR)
    top, left = round((size[0] - 40) / 2), round((size[1] - 40) / 2)
    wanted = np.asarray(image)[top : top + 40, left : left + 40].astype(int)
    mean, most = difference(found, wanted)
    assert mean < 0.3
    assert most <= 2


@pytest.mark.parametrize("size", [(30, 30), (5, 7), (200, 260), (90, 120), (1, 1)])
def test_a_resized_array_is_pillows_within_rounding(size: tuple[int, int]) -> None:
    array = photograph(90, 120)
    wanted = np.asarray(Image.fromarray(array).resize(size[::-1], Image.BILINEAR)).astype(int)
    assert difference(Compose([Resize(size)]).apply(array), wanted)[1] <= 2


@pytest.mark.parametrize("value", [0, 1, 127, 254, 255])
@pytest.mark.parametrize("shape", [(300, 1), (1, 300), (700, 900), (17, 18)])
def test_an_even_color_stays_what_it_is(value: int, shape: tuple[int, int]) -> None:
    array = np.full((*shape, 3), value, np.uint8)
    for size in ((1, 1), (16, 16), (400, 333)):
        assert (Compose([Resize(size)]).apply(array) == value).all()


@pytest.mark.parametrize("width", [2124, 2207, 4096, 9500])
def test_much_smaller_images_are_pillows_within_rounding(width: int) -> None:
    array = rng().integers(0, 256, (300, width, 3), np.uint8)
    for size in ((1, 2), (4, 3), (7, 7)):
        wanted = np.asarray(Image.fromarray(array).resize(size[::-1], Image.BILINEAR)).astype(int)
        assert difference(Compose([Resize(size)]).apply(array), wanted)[1] <= 1
        tall = array.transpose(1, 0, 2).copy()
        wanted = np.asarray(Image.fromarray(tall).resize(size[::-1], Image.BILINEAR)).astype(int)
        assert difference(Compose([Resize(size)]).apply(tall), wanted)[1] <= 1


def test_padding_is_that_of_numpy() -> None:
    array = photograph(20, 30)
    found = Compose([RandomCrop((28, 40), padding=(5, 4), fill=(1, 2, 3))]).apply(array)
    framed = np.empty((28, 40, 3), np.uint8)
    framed[:] = (1, 2, 3)
    framed[4:24, 5:35] = array
    assert (found == framed).all()
    assert (Compose([CenterCrop((22, 10))]).apply(array)[1:21] == array[:, 10:20]).all()
    assert Compose([RandomCrop(50, pad_if_needed=True)]).apply(array).shape == (50, 50, 3)


def adjusted(kind: str, factor: float) -> Callable[[Any], Any]:
    return lambda image: getattr(ImageEnhance, kind)(image).enhance(factor)


def hue(image: Any, factor: float) -> Any:
    h, s, v = image.convert("HSV").split()
    turned = (np.asarray(h).astype(int) + int(factor * 255)).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(turned, "L"), s, v)).convert("RGB")


FACTORS = [0.0, 0.3, 0.99, 1.0, 1.7, 5.0]
CHANGES: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    *(
        (f"{ours.__name__} {factor}", lambda a, o=ours, f=factor: o(a, f), adjusted(kind, factor))
        for kind, ours in (
            ("Brightness", color_changes.brighten),
            ("Contrast", color_changes.contrast),
            ("Color", color_changes.saturate),
            ("Sharpness", color_changes.sharpen),
        )
        for factor in FACTORS
    ),
    *(
        (f"posterize {bits}", lambda a, b=bits: color_changes.posterize(a, b),
         lambda image, b=bits: ImageOps.posterize(image, b))
        for bits in (1, 4, 8)
    ),
    *(
        (f"solarize {at}", lambda a, t=at: color_changes.solarize(a, t),
         lambda image, t=at: ImageOps.solarize(image, t))
        for at in (0, 100, 256)
    ),
    ("auto_contrast", color_changes.auto_contrast, ImageOps.autocontrast),
    ("equalize", color_changes.equalize, ImageOps.equalize),
]  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "pillows"), [each[1:] for each in CHANGES], ids=[each[0] for each in CHANGES]
)
def test_a_change_of_colors_equals_pillows(
    ours: Callable[[Any], Any], pillows: Callable[[Any], Any]
) -> None:
    dull = (photograph(40, 50, 1) // 3 + 60).astype(np.uint8)
    for array in (photograph(40, 50), dull, np.full((4, 4, 3), 9, np.uint8), photograph(1, 1)):
        wanted = np.asarray(pillows(Image.fromarray(array)))
        assert (ours(array.copy()) == wanted).all()


@pytest.mark.parametrize("factor", [-0.5, -0.2, 0.0, 0.1, 0.5])
def test_a_turned_hue_is_pillows(factor: float) -> None:
    array = rng().integers(0, 256, (200, 200, 3), np.uint8)
    wanted = np.asarray(hue(Image.fromarray(array), factor)).astype(int)
    found = color_changes.shift_hue(array.copy(), factor)
    assert (found == wanted).all()


@pytest.mark.parametrize("degrees", [0, 10, -30, 45, 135])
def test_a_turned_image_is_pillows(degrees: float) -> None:
    array = photograph(40, 50)
    wanted = np.asarray(Image.fromarray(array).rotate(degrees, Image.NEAREST))
    assert (auto_augment._TURN(array, degrees) == wanted).all()


@pytest.mark.parametrize(
    ("change", "by", "numbers"),
    [
        (auto_augment._SHEAR_X, 0.3, (1, 0.3, 0, 0, 1, 0)),
        (auto_augment._SHEAR_Y, -0.99, (1, 0, 0, -0.99, 1, 0)),
        (auto_augment._MOVE_X, 7.9, (1, 0, -7, 0, 1, 0)),
        (auto_augment._MOVE_Y, -7.9, (1, 0, 0, 0, 1, 7)),
    ],
)
def test_a_moved_image_is_pillows(change: Any, by: float, numbers: tuple[float, ...]) -> None:
    array = photograph(40, 50)
    image = Image.fromarray(array)
    wanted = np.asarray(image.transform(image.size, Image.AFFINE, numbers, Image.NEAREST))
    assert (change(array, by) == wanted).all()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
def test_an_upright_image_is_turned_as_pillow_turns_it(orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(photograph(24, 40), kind, exif=exif)
    with Image.open(io.BytesIO(content)) as image:
        wanted = np.asarray(ImageOps.exif_transpose(image)).astype(int)
    assert difference(decode(content, upright=True), wanted)[1] <= 2
    box = (3, 5, 16, 12)
    part = wanted[3:19, 5:17]
    assert difference(decode(content, upright=True, crop=box), part)[1] <= 2
    if kind != "TIFF":  # which Pillow turns
        assert decode(content).shape == (24, 40, 3)


def test_a_tiff_on_its_side_has_the_size_of_its_pixels_beside_an_older_pillow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encoded(photograph(24, 40), "TIFF", exif=exif)
    opened = EncodedImage._opened

    def older(self: EncodedImage) -> Any:  # before 11 the size is turned with the pixels
        image = opened(self)
        image._size = (40, 24)
        return image

    monkeypatch.setattr(EncodedImage, "_opened", older)
    image = EncodedImage(content)
    assert (image.height, image.width) == (40, 24)


# -- parts of JPEGs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"subsampling": "4:4:4"}, {"subsampling": "4:2:2"}, {"progressive": True}]
)
def test_a_part_of_a_jpeg_is_the_part_of_the_whole(options: dict[str, Any], rng: Any) -> None:
    for _ in range(10):
        height, width = (int(side) for side in rng.integers(1, 150, 2))
        content = encoded(photograph(height, width), **options)
        whole = decode(content)
        for _ in range(10):
            top, left = int(rng.integers(height)), int(rng.integers(width))
            box = (
                top,
                left,
                int(rng.integers(1, height - top + 1)),
                int(rng.integers(1, width - left + 1)),
            )
            part = whole[top : top + box[2], left : left + box[3]]
            assert (decode(content, crop=box) == part).all()


def test_a_cut_off_jpeg_is_reported_for_any_part() -> None:
    content = encoded(photograph(100, 100))
    for part in (0.3, 0.7, 0.99):
        with pytest.raises(ImageError, match="damaged JPEG file"):
            decode(content[: int(part * len(content))], crop=(0, 0, 8, 8))


# -- boxes, masks and points --------------------------------------------------------------------


def test_boxes_masks_and_points_follow_their_image() -> None:
    array = np.zeros((40, 60, 3), np.uint8)
    mask = np.zeros((40, 60), np.int32)
    array[10:20, 30:50], mask[10:20, 30:50] = 255, 7
    transforms = [RandomResizedCrop(scale=(0.5, 1)), RandomHorizontalFlip(), RandomVerticalFlip()]
    for seed in range(40):
        found, targets = Compose(transforms, size=(64, 64)).apply(
            array, rng(seed), boxes=[[30, 10, 50, 20]], masks=mask, points=[[40.0, 15.0]]
        )
        bright = found[:, :, 0] > 127
        assert targets["masks"].dtype == np.int32
        assert ((targets["masks"] == 7) != bright).mean() < 0.03
        left, top, right, bottom = targets["boxes"][0]
        rows, columns = np.flatnonzero(bright.any(1)), np.flatnonzero(bright.any(0))
        if len(rows):
            assert np.allclose((top, bottom), (rows[0], rows[-1] + 1), atol=1.5)
            assert np.allclose((left, right), (columns[0], columns[-1] + 1), atol=1.5)
        if left > 1 and right < 63 and top > 1 and bottom < 63:
            assert np.allclose(targets["points"][0], ((left + right) / 2, (top + bottom) / 2))


def test_boxes_follow_padding_and_a_second_resize() -> None:
    steps = [Resize((20, 30)), RandomCrop((24, 34), padding=2), Resize((48, 68))]
    _, targets = Compose(steps).apply(
        np.zeros((10, 15, 3), np.uint8), boxes=np.array([[0, 0, 15, 10]])
    )
    assert targets["boxes"].tolist() == [[4, 4, 64, 44]]
    _, targets = Compose(steps).apply(np.zeros((10, 15, 3), np.uint8), boxes=[])
    assert targets["boxes"].shape == (0, 4)


def test_transforms_that_boxes_cannot_follow_are_refused() -> None:
    array = np.zeros((10, 15, 3), np.uint8)
    with pytest.raises(ConfigError, match=r"RandAugment.* moves pixels, and boxes"):
        Compose([RandAugment()]).apply(array, boxes=[[0, 0, 1, 1]])
    with pytest.raises(
        ConfigError, match=r"masks must be \.\.\. x 10 x 15, as the image, got \(3, 3\)"
    ):
        Compose().apply(array, masks=np.zeros((3, 3)))
    with pytest.raises(ConfigError, match=r"boxes must be numbers of \.\.\. x 4"):
        Compose().apply(array, boxes=[[1, 2, 3]])


# -- functions of the user's, and what works on the result --------------------------------------


def test_functions_are_called_in_their_place() -> None:
    seen: list[tuple[Any, ...]] = []

    def look(image: Any) -> Any:
        seen.append((image.shape, image.dtype.name))
        return image

    Compose(
        [Resize((8, 9)), look, RandomHorizontalFlip(), Normalize(0.5, 0.5), look],
        layout="channels_first",
    ).apply(np.zeros((4, 4, 3), np.uint8))
    assert seen == [((8, 9, 3), "uint8"), ((3, 8, 9), "float32")]
    assert Compose([str, len]).apply(np.zeros((4, 4, 3), np.uint8)) > 10  # no image any more
    with pytest.raises(
        ConfigError, match=r"RandomHorizontalFlip.* follows a function that returned"
    ):
        Compose([str, RandomHorizontalFlip()]).apply(np.zeros((4, 4, 3), np.uint8))


LARGE = np.zeros((10, 15, 3), np.uint8)


def floats(image: Any) -> Any:
    return image / np.float64(255)


def with_alpha(image: Any) -> Any:
    return np.dstack([image, image[..., 0]])


@pytest.mark.parametrize("function", [floats, with_alpha])
@pytest.mark.parametrize(
    ("transforms", "options", "lost"),
    [
        ([Normalize(0.5, 0.5)], {}, r"^Normalize.* cannot be had behind <function"),
        ([], {"size": (4, 4)}, r"^size=\(4, 4\) cannot be had"),
        ([], {"layout": "channels_first"}, "^layout='channels_first' cannot be had"),
        ([], {"dtype": "float16"}, "^dtype='float16' cannot be had"),
    ],
)
def test_the_result_of_a_function_gets_the_requested_form(
    function: Any, transforms: list[Any], options: dict[str, Any], lost: str
) -> None:
    with pytest.raises(ConfigError, match=lost):
        Compose([function, *transforms], **options).apply(LARGE)


def test_the_result_of_a_function_may_have_the_requested_form_already() -> None:
    crop = [Resize((4, 4)), floats, lambda image: image.transpose(2, 0, 1)]
    options = {"size": (4, 4), "layout": "channels_first", "dtype": "float64"}
    assert Compose(crop, **options).apply(LARGE).shape == (3, 4, 4)
    assert Compose([floats]).apply(LARGE).dtype == np.float64


@pytest.mark.parametrize(
    "transforms",
    [
        [lambda image: image[:4] / 2],
        [floats, lambda image: image[:, :4]],
        [Normalize(0, 1), lambda image: image[:4]],
    ],
)
def test_boxes_are_refused_where_a_function_made_another_size(transforms: list[Any]) -> None:
    with pytest.raises(ConfigError, match="cannot follow it: keep the size"):
        Compose(transforms).apply(LARGE, boxes=[[0, 0, 1, 1]])


def test_the_result_of_a_last_function_is_not_changed() -> None:
    kept = np.full((8, 8, 3), 50, np.uint8)
    kept.setflags(write=False)
    brighter = Compose([lambda _: kept, ColorJitter(brightness=(2, 2))])
    assert (brighter.apply(kept) == 100).all()
    ones = np.ones((8, 8, 3), np.float32)
    erased = Compose([Normalize(0, 1), lambda _: ones, RandomErasing(1, value=9)])
    assert (erased.apply(kept) == 9).any()
    assert (ones == 1).all()
    with pytest.raises(ConfigError, match="needs an array of NumPy of 3 axes"):
        Compose([Normalize(0, 1), lambda image: image[0], RandomErasing(1)]).apply(kept)
    row = np.zeros((8, 8, 3), np.float32)
    assert Compose([Normalize(0, 1), lambda image: image + 1]).apply(kept, out=row) is row
    assert (row > 1).all()


def test_lists_may_hold_lists() -> None:
    array = photograph(20, 30)
    flips = Compose([RandomHorizontalFlip(1)])
    assert (Compose([flips, Resize(10)]).apply(array) == Compose(flips).apply(
        Compose([Resize(10)]).apply(array))).all()  # fmt: skip
    with pytest.raises(ConfigError, match="has options of its own"):
        Compose([Compose(layout="channels_first")])


def test_numbers_of_numpy_are_numbers() -> None:
    array = photograph(20, 30)
    assert Compose([Resize(np.int64(10))]).apply(array).shape == (10, 15, 3)  # type: ignore[arg-type]
    assert Compose([Resize([10])]).apply(array).shape == (10, 15, 3)  # type: ignore[arg-type]
    assert CenterCrop(np.float32(0.5))(20, 30) == CenterCrop(0.5)(20, 30)
    assert CenterCrop(0.5, 2.0) == CenterCrop(part=0.5, ratio=2.0)
    assert RandomResizedCrop((0.5, 1.0), (1, 2)) == RandomResizedCrop(scale=(0.5, 1), ratio=(1, 2))
    assert RandomResizedCrop((1, 1)) == RandomResizedCrop(scale=(1, 1))
    crop = RandomCrop(30, padding=np.array([2, 5]), fill=np.int64(3))  # type: ignore[arg-type]
    assert Compose([crop]).apply(array).shape == (30, 30, 3)
    ColorJitter(np.float32(0.4))  # type: ignore[arg-type]
    RandomErasing(value=np.float32(1))
    assert Compose(dtype=np.float16).dtype == Compose(dtype="f2").dtype == np.float16


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
def test_a_rectangle_is_erased(layout: str) -> None:
    array = np.full((40, 50, 3), 255, np.uint8)
    areas = []
    for seed in range(200):
        found = Compose(
            [Normalize(0, 1), RandomErasing(0.5, value=(2, 3, 4))], layout=layout
        ).apply(array, rng(seed))
        planes = found if layout == "channels_first" else found.transpose(2, 0, 1)
        gone = planes[0] == 2
        assert ((planes[1] == 3) == gone).all()
        areas.append(gone.mean())
        if gone.any():
            rows, columns = np.flatnonzero(gone.any(1)), np.flatnonzero(gone.any(0))
            assert gone[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
    assert 0.3 < np.mean(np.array(areas) > 0) < 0.7
    assert 0.01 < max(areas) < 0.36
    noise = Compose([Normalize(0, 1), RandomErasing(1, value="random")]).apply(array, rng())
    assert len(np.unique(noise)) > 20


# -- what a list is applied to -------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("theirs", ["RGB", "RGBA", "L", "P", "CMYK"])
def test_an_image_of_pillow_is_taken(theirs: str, mode: str) -> None:
    image = Image.fromarray(photograph(20, 30)).convert(theirs)
    wanted = np.atleast_3d(np.asarray(image.convert(mode)))
    assert np.array_equal(Compose(mode=mode).apply(image), wanted)
    flipped, found = Compose([RandomHorizontalFlip(1)], mode=mode).apply(
        image, boxes=[[0, 0, 10, 10]]
    )
    assert np.array_equal(flipped, wanted[:, ::-1])
    assert found["boxes"].tolist() == [[20, 0, 30, 10]]


def test_an_image_of_pillow_is_turned_upright() -> None:
    image = Image.fromarray(photograph(20, 30))
    image.getexif()[0x0112] = 6
    assert Compose().apply(image).shape == (20, 30, 3)
    assert Compose(upright=True).apply(image).shape == (30, 20, 3)


def test_an_image_of_pillow_that_is_cut_off_is_an_error() -> None:
    file = io.BytesIO()
    Image.fromarray(photograph(64, 64)).save(file, "PNG")
    with pytest.raises(ImageError, match=r"an image of Pillow, 64 x 64, cannot be read: .* anew"):
        Compose().apply(Image.open(io.BytesIO(file.getvalue()[:200])))
    with pytest.raises(ImageError, match="colors of the mode La, which Pillow does not convert"):
        Compose().apply(Image.new("La", (4, 4)))


@pytest.mark.peer
def test_a_tensor_is_refused_with_what_to_pass() -> None:
    torch = pytest.importorskip("torch")
    first = r"(?s)image must be an array of NumPy.*pass it\.permute\(1, 2, 0\)\.numpy\(\)"
    with pytest.raises(ConfigTypeError, match=first):
        Compose().apply(torch.zeros(3, 8, 8, dtype=torch.uint8))
    with pytest.raises(ConfigTypeError, match=r"(?s)an image of Pillow, .* pass it\.numpy\(\)$"):
        Compose().apply(torch.zeros(8, 8, 3, dtype=torch.uint8))
    with pytest.raises(ConfigTypeError, match=r"image must be .* got 5 \(int\)$"):
        Compose().apply(5)


@pytest.mark.peer
def test_targets_that_are_tensors_of_bfloat16_are_refused() -> None:
    torch = pytest.importorskip("torch")
    array = photograph(8, 8)
    for name, shape in (("boxes", (1, 4)), ("points", (1, 2)), ("masks", (8, 8))):
        given: Any = {name: torch.zeros(shape, dtype=torch.bfloat16)}
        with pytest.raises(ConfigError, match=rf"(?s){name} must be .*, of bfloat16 it\.float\(\)"):
            Compose().apply(array, **given)
        given = {name: torch.zeros(shape)}
        assert Compose().apply(array, **given)[1][name].shape == shape
    with pytest.raises(
        ConfigError, match=r"masks must be ... x 8 x 8, as the image, got \[\[1\], "
    ):
        Compose().apply(array, masks=[[1], [1, 2]])


# What torchvision 0.28 has with torch 2.13 on processors with AVX2: `_augmentation_space(31, ...)`
# of TrivialAugmentWide, and of RandAugment for 375 x 500 pixels.
MAGNITUDES: list[tuple[Any, int, dict[int, float]]] = [
    (
        auto_augment._TRIVIAL,
        3,  # TranslateX
        {9: 9.600000381469727, 14: 14.933334350585938, 15: 15.999999046325684, 30: 32.0},
    ),
    (
        auto_augment._TRIVIAL,
        6,  # Brightness
        {9: 0.296999990940094, 15: 0.4950000047683716, 29: 0.9570000171661377},
    ),
    (auto_augment._TRIVIAL, 5, {1: 4.5, 15: 67.5, 29: 130.5}),  # Rotate
    (auto_augment._TRIVIAL, 10, {2: 0, 3: 1, 7: 1, 8: 2, 30: 6}),  # Posterize: 8 - bits
    (auto_augment._TRIVIAL, 11, {0: 255.0, 9: 178.5, 16: 119.0, 30: 0.0}),  # Solarize
    (auto_augment._RAND, 3, {9: 67.975830078125, 15: 113.29305267333984, 30: 226.5861053466797}),
    (auto_augment._RAND, 6, {9: 0.26999998092651367, 15: 0.44999998807907104}),
]


@pytest.mark.parametrize(("changes", "number", "wanted"), MAGNITUDES)
def test_magnitudes_are_those_of_torchvision(
    changes: Any, number: int, wanted: dict[int, float]
) -> None:
    class Plus:
        def random(self) -> float:
            return 0.9

    for bin_, magnitude in wanted.items():
        generator: Any = Plus()
        assert changes[number].magnitude(bin_, 31, generator, (375, 500, 3)) == magnitude


@pytest.mark.peer
def test_magnitudes_are_spread_as_by_torch() -> None:
    torch = pytest.importorskip("torch")
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        pytest.skip("this processor rounds products before they are added")
    for bins in (2, 5, 10, 31, 100):
        for least, greatest in ((0, 0.3), (0, 0.99), (0, 32), (255, 0), (0, 150 / 331 * 333)):
            found = [auto_augment._spread(least, greatest, bin_, bins) for bin_ in range(bins)]
            assert found == torch.linspace(least, greatest, bins).tolist()


# -- batches that are mixed ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_each_sample_of_a_batch_is_mixed_with_the_one_before(dtype: str) -> None:
    images = rng().integers(0, 256, (5, 6, 7, 3)).astype(dtype)
    before = images.copy()
    found, shares = MixUp(10, alpha=0.8).apply(images, [0, 1, 2, 3, 9], rng(4))
    part = rng(4).beta(0.8, 0.8)
    wanted = part * before + (1 - part) * np.roll(before, 1, axis=0)
    assert found is images
    assert np.allclose(found, wanted, atol=0.51 if dtype == "uint8" else 1e-3)
    assert np.allclose(shares.sum(1), 1)
    assert np.allclose((shares[0, 0], shares[0, 9], shares[4, 3]), (part, 1 - part, 1 - part))


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
def test_a_rectangle_of_the_sample_before_is_pasted(layout: str) -> None:
    shape = (4, 20, 30, 3) if layout == "channels_last" else (4, 3, 20, 30)
    for seed in range(20):
        images = np.broadcast_to(np.arange(4.0).reshape(4, 1, 1, 1), shape).copy()
        found, shares = CutMix(4, layout=layout).apply(images, np.arange(4), rng(seed))
        own = (found == np.arange(4.0).reshape(4, 1, 1, 1)).mean(axis=(1, 2, 3))
        assert np.allclose(own, np.diag(shares), atol=1e-6)
        assert np.allclose(shares.sum(1), 1)


def test_a_mix_collates() -> None:
    images, shares = MixUp(3)([(np.zeros((2, 2, 3), np.float32), n) for n in range(3)])
    assert (images.shape, shares.shape) == ((3, 2, 2, 3), (3, 3))
    shares_again = CutMix(3).apply(images, shares)[1]
    assert shares_again.shape == (3, 3)


# -- what cannot be -----------------------------------------------------------------------------


SMALL = np.zeros((2, 2, 3), np.uint8)
BAD: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: Compose([RandomHorizontalFlip]),
        ConfigTypeError,
        r"objects such as RandomHorizontalFlip\(\)",
    ),
    (lambda: Compose(5), ConfigTypeError, "transforms must be a list of transforms, got 5"),
    (lambda: Compose(["flip"]), ConfigTypeError, "functions of an array, got 'flip'"),
    (
        lambda: Compose(layout="NCHW"),
        ConfigError,
        "layout must be one of channels_last, channels_first",
    ),
    (lambda: Compose(dtype="int8"), ConfigError, "dtype must be one of uint8, uint16, float16"),
    (lambda: Compose(mode="BGR"), ConfigError, "mode must be"),
    (lambda: Compose([Normalize(0, 1)], dtype="uint8"), ConfigError, "makes floats"),
    (lambda: Compose([Normalize(0, 1), Normalize(0, 1)]), ConfigError, "one Normalize"),
    (lambda: Compose([Normalize(0, 1), ColorJitter()]), ConfigError, "put it before Normalize"),
    (lambda: Compose([RandomErasing(), Resize(3)]), ConfigError, "works on the result"),
    (lambda: Normalize(0, 0), ConfigError, "std must not be 0"),
    (lambda: Normalize(0, 1e-50), ConfigError, "std must not be 0"),
    (lambda: Compose(dtype=object()), ConfigError, "dtype must be one of"),
    (
        lambda: Compose([Resize(256)]).apply(np.zeros((1, 600_000, 3), np.uint8)),
        ConfigError,
        "is the limit",
    ),
    (
        lambda: Compose([RandomCrop(4, padding=2, fill=300)]),
        ConfigError,
        "fill must be a whole number from 0",
    ),
    (
        lambda: Compose([RandomCrop(4, padding=2, fill=(1, 2, 3))]).apply(SMALL[:, :, :1].copy()),
        ConfigError,
        "fill has 3 numbers",
    ),
    (
        lambda: Compose([Normalize(0, 1), RandomCrop(4, padding=2)]).apply(SMALL),
        ConfigError,
        "put it before Normalize",
    ),
    (lambda: Compose([RandomErasing(value=300)]), ConfigError, "the result is uint8"),
    (lambda: RandomErasing(scale=0.3), ConfigTypeError, "scale must be .low, high."),
    (lambda: RandomErasing(ratio=(1, np.inf)), ConfigError, "ratio must be"),
    (lambda: ColorJitter(np.inf), ConfigError, "brightness must be"),
    (lambda: RandAugment(num_ops=2.0), ConfigTypeError, "num_ops must be an int"),
    (lambda: Compose().apply(SMALL, out=SMALL), ConfigError, "must not share memory"),
    (
        lambda: Compose([lambda image: image[:1]]).apply(SMALL, masks=SMALL[:, :, 0]),
        ConfigError,
        "keep the size",
    ),
    (lambda: Compose().apply(SMALL, boxes=5), ConfigError, "boxes must be numbers"),
    (lambda: Compose().apply(SMALL, boxes=[[1], [2, 3]]), ConfigError, "boxes must be numbers"),
    (lambda: Normalize("a", 1), ConfigTypeError, "mean must be a number"),
    (lambda: Normalize((0, np.nan), 1), ConfigTypeError, "mean must be a number"),
    (
        lambda: RandomHorizontalFlip(1.5),
        ConfigError,
        "p must be a probability, from 0 to 1, got 1.5",
    ),
    (lambda: RandomVerticalFlip(-1), ConfigError, "p must be a probability"),
    (lambda: RandomGrayscale(2), ConfigError, "p must be a probability"),
    (lambda: Resize(0), ConfigError, "is no size of an image"),
    (lambda: Resize(8, max_size=8), ConfigError, "max_size must be above the shorter side"),
    (lambda: RandomCrop(4, padding=-1), ConfigError, "padding must be 0 or more"),
    (lambda: RandomCrop(4, padding=(1, 2, 3)), ConfigTypeError, "padding must be one number"),
    (lambda: RandomCrop("4"), ConfigTypeError, "whole numbers of pixels"),
    (lambda: ColorJitter(hue=0.6), ConfigError, "hue must be a number"),
    (lambda: ColorJitter(brightness=-1), ConfigError, "brightness must be a number"),
    (lambda: ColorJitter(contrast=(2, 1)), ConfigError, "contrast must be a number"),
    (lambda: RandAugment(magnitude=31), ConfigError, r"magnitude must be an int in \[0, 30\]"),
    (lambda: TrivialAugmentWide(1), ConfigError, "num_magnitude_bins must be an int of 2 or more"),
    (lambda: RandomErasing(value="x"), ConfigError, "value must be a number"),
    (lambda: RandomErasing(scale=(0.5, 0.1)), ConfigError, "scale must be"),
    (lambda: RandomErasing(ratio=(0, 1)), ConfigError, "ratio must be"),
    (lambda: MixUp(0), ConfigError, "num_classes must be an int of 1 or more"),
    (lambda: CutMix(3, alpha=0), ConfigError, "alpha must be a number above 0"),
    (lambda: MixUp(3, layout="x"), ConfigError, "layout must be"),
    (lambda: MixUp(3).apply(np.zeros((2, 2, 2)), [0, 1]), ConfigTypeError, "4 axes"),
    (
        lambda: MixUp(3).apply(np.zeros((2, 2, 2, 3)), [0, 3]),
        ConfigError,
        "labels must be from 0 to 2",
    ),
    (lambda: MixUp(3).apply(np.zeros((2, 2, 2, 3)), [0]), ConfigError, "2 numbers of classes"),
    (lambda: Compose().apply(np.zeros((2, 2, 3))), ConfigError, "array of uint8"),
    (lambda: Compose().apply(np.zeros((0, 2, 3), np.uint8)), ConfigError, "array of uint8"),
    (lambda: Compose().apply(np.zeros((2, 2, 2), np.uint8)), ConfigError, "1 or 3"),
    (lambda: Compose().apply([[1]]), ConfigTypeError, "image must be an array of NumPy, .* a path"),
    (lambda: Compose([RandomCrop(9)]).apply(SMALL), ConfigError, "does not fit into an array"),
    (
        lambda: Compose([Normalize(MEAN, STD)]).apply(np.zeros((2, 2, 1), np.uint8)),
        ConfigError,
        "mean of 3 channels, and the image has 1",
    ),
    (
        lambda: Compose([Resize(2)]).apply(SMALL, out=np.zeros((3, 2, 3), np.uint8)),
        ConfigError,
        "out must have the shape",
    ),
    (lambda: Compose([Resize(2)]).apply(SMALL, out=[0]), ConfigTypeError, "out must be an array"),
    (lambda: RandomHorizontalFlip("a"), ConfigTypeError, "p must be a probability"),
    (lambda: RandomVerticalFlip(None), ConfigTypeError, "p must be a probability"),
    (lambda: RandomErasing("a"), ConfigTypeError, "p must be a probability"),
    (lambda: RandomErasing(value=()), ConfigTypeError, "value must be a number, one for each"),
    (lambda: CenterCrop(ratio="a"), ConfigTypeError, "ratio must be width / height"),
    (lambda: CenterCrop(part="a"), ConfigTypeError, "part must be above 0"),
    (lambda: MixUp("a"), ConfigTypeError, "num_classes must be an int"),
    (lambda: MixUp(2.5), ConfigTypeError, "num_classes must be an int"),
    (lambda: CutMix(3, "a"), ConfigTypeError, "alpha must be a number above 0"),
    (lambda: TrivialAugmentWide("a"), ConfigTypeError, "num_magnitude_bins must be an int"),
    (lambda: TrivialAugmentWide(2.5), ConfigTypeError, "num_magnitude_bins must be an int"),
    (lambda: RandAugment(2, 9, 31.5), ConfigTypeError, "num_magnitude_bins must be an int"),
    (lambda: RandomCrop(3, fill=1.7), ConfigError, "fill must be a whole number"),
    (lambda: Normalize((0, 1), 1), ConfigTypeError, "mean must be a number, or one for each of 3"),
    (lambda: Normalize(0, (1, 1, 1, 1)), ConfigTypeError, "std must be a number, or one for each"),
    (lambda: Compose().apply(SMALL, 0), ConfigTypeError, "rng must be a numpy.random.Generator"),
    (
        lambda: MixUp(3).apply(np.zeros((2, 2, 2, 3)), [0, 1], np.random.RandomState(0)),
        ConfigTypeError,
        r"rng must be .* pass reader.sample_rng\(index\)",
    ),
    (lambda: Compose([RandomCrop(3, padding=10**7)]).apply(SMALL), ConfigError, "is the limit"),
    (lambda: MixUp(3)([(SMALL, 1, 2)]), ConfigTypeError, "takes samples .image, number"),
    (lambda: MixUp(3)([(SMALL, 1), (SMALL[:1], 1)]), ConfigError, "takes images of one size"),
    (
        lambda: CutMix(3, layout="channels_first").apply(np.zeros((2, 8, 8, 3)), [0, 1]),
        ConfigError,
        'no batch of layout="channels_first"',
    ),
    (
        lambda: CutMix(3).apply(np.zeros((2, 3, 8, 8)), [0, 1]),
        ConfigError,
        'no batch of layout="channels_last"',
    ),
]


@pytest.mark.parametrize(("make", "error", "text"), BAD)
def test_invalid_arguments_are_refused(
    make: Callable[[], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        make()


def test_transforms_survive_pickle() -> None:
    transforms = Compose(EVERY, size=(24, 24))
    again = pickle.loads(pickle.dumps(transforms))
    array = photograph(50, 60)
    assert (again.apply(array, rng(2)) == transforms.apply(array, rng(2))).all()
    assert str(again) == str(transforms)


def test_a_whole_list_is_pillows_within_rounding() -> None:
    content = encoded(photograph(90, 120), quality=95)
    found = Compose([Resize(64), CenterCrop(56), Normalize(MEAN, STD)]).apply(content)
    image = Image.fromarray(by_pillow(content).astype(np.uint8)).resize((85, 64), Image.BILINEAR)
    wanted = np.asarray(image.crop((14, 4, 70, 60))).astype(np.float32) / 255
    wanted = (wanted - np.float32(MEAN)) / np.float32(STD)
    assert np.abs(found - wanted).max() < 3 / 255 / 0.22
