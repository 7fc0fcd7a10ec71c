"""JPEG files of phones and cameras: turned ones, bytes behind the image and between its parts."""

from __future__ import annotations

import base64
import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ImageError
from reader._core.pixels.render import jpeg_end, render
from reader.images import (
    Compose,
    ImageFolder,
    RandomHorizontalFlip,
    decode,
    image_size,
)
from reader.images.crops import CropBy
from reader.images.encoded_image import EncodedImage
from reader.images.jpeg import jpeg_orientation

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("simplejpeg")
from PIL import ImageFile, ImageOps, features  # noqa: E402  Pillow may be missing

ORIENTATIONS = range(1, 9)
END = b"\xff\xd9"
TEXT = b"SEFH: a camera's own block. " * 20
VIDEO = b"\0\0\0\x18ftypmp42" + np.random.default_rng(1).bytes(50_000)


def photograph(height: int, width: int) -> Any:
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (max(2, height // 12), max(2, width // 12), 3), np.uint8)
    return Image.fromarray(small).resize((width, height), Image.BICUBIC)


def encoded(image: Any, kind: str = "JPEG", orientation: int = 0, **options: Any) -> bytes:
    exif = Image.Exif()
    if orientation:
        exif[0x0112] = orientation
    file = io.BytesIO()
    quality = {"quality": 92} if kind == "JPEG" else {}
    image.save(file, kind, exif=exif, **quality, **options)
    return file.getvalue()


def upright_by_pillow(content: bytes, mode: str = "RGB") -> Any:
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(content)).convert(mode))
    array = np.asarray(image)
    return array[:, :, np.newaxis] if mode == "L" else array


def away(found: Any, wanted: Any) -> Any:
    assert found.shape == wanted.shape
    return np.abs(found.astype(int) - wanted)


def place_of(content: bytes, marker: int) -> int:
    """Return where the first part with a marker begins in a header."""
    at = 2
    while content[at + 1] != marker:
        at += 2 + int.from_bytes(content[at + 2 : at + 4], "big")
    return at


# -- turned -------------------------------------------------------------------------------------


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [(61, 33), (201, 333), (1, 1), (16, 70)])
def test_a_turned_jpeg_is_that_of_pillow(orientation: int, mode: str, size: Any) -> None:
    content = encoded(photograph(*size), orientation=orientation)
    wanted = upright_by_pillow(content, mode)
    assert away(decode(content, upright=True, mode=mode), wanted).max() <= 3
    height, width = wanted.shape[0] // 2 + 1, wanted.shape[1] // 3 + 1
    box = (wanted.shape[0] - height, 0, height, width)
    crop = decode(content, upright=True, mode=mode, crop=box)
    assert away(crop, wanted[-height:, :width]).max() <= 3


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("factor", [2, 3, 5, 9])
def test_a_turned_jpeg_is_decoded_small_and_resized(orientation: int, factor: int) -> None:
    content = encoded(photograph(203, 333), orientation=orientation)
    wanted = Image.fromarray(upright_by_pillow(content))
    size = wanted.height // factor, wanted.width // factor
    resized = np.asarray(wanted.resize(size[::-1], Image.BILINEAR))
    assert away(decode(content, upright=True, size=size), resized).mean() < 4
    exact = decode(content, upright=True, size=size, exact=True)
    assert away(exact, resized).max() <= 3


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("channels_first", [False, True])
@pytest.mark.parametrize("with_table", [False, True])
@pytest.mark.parametrize("flip", [False, True])
def test_each_form_of_a_turned_view(
    orientation: int, channels_first: bool, with_table: bool, flip: bool
) -> None:
    image = EncodedImage(encoded(photograph(61, 90), orientation=orientation), upright=True)
    wanted = decode(encoded(photograph(61, 90), orientation=orientation), upright=True)
    view = image.view()
    view.crop(3, 4, 50, 40)
    view.rows.is_flipped = view.columns.is_flipped = flip
    wanted = wanted[3:53, 4:44][::-1, ::-1] if flip else wanted[3:53, 4:44]
    table = np.tile(np.arange(256, dtype=np.float32), (3, 1)) if with_table else None
    out = np.empty((3, 50, 40) if channels_first else (50, 40, 3), "f4" if with_table else "u1")
    image.render(view, out, table, channels_first)
    np.testing.assert_array_equal(out.transpose(1, 2, 0) if channels_first else out, wanted)


@pytest.mark.parametrize("orientation", [3, 5, 6, 8])
def test_a_cache_keeps_turned_pictures_as_they_are_without_it(
    tmp_path: Path, orientation: int
) -> None:
    for number in range(3):
        path = tmp_path / "a" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encoded(photograph(203, 301), orientation=orientation))
    for size in (None, (64, 64), (30, 21)):
        plain = ImageFolder(tmp_path, size=size, upright=True)
        kept = ImageFolder(tmp_path, size=size, upright=True, cache="50MB")
        for index in (0, 1, 2, 0, 1, 2):
            np.testing.assert_array_equal(kept[index][0], plain[index][0])


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("kind", ["PNG", "WebP"])
def test_a_turned_file_of_another_kind_is_that_of_pillow(orientation: int, kind: str) -> None:
    options = {"lossless": True} if kind == "WebP" else {}
    content = encoded(photograph(61, 33), kind, orientation, **options)
    wanted = upright_by_pillow(content)
    np.testing.assert_array_equal(decode(content, upright=True), wanted)
    crop = decode(content, upright=True, crop=(1, 2, 20, 30))
    np.testing.assert_array_equal(crop, wanted[1:21, 2:32])


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("flip", [False, True])
def test_a_turned_picture_of_16_bits_keeps_them(
    tmp_path: Path, orientation: int, flip: bool
) -> None:
    stored = np.random.default_rng(0).integers(0, 65536, (41, 30), np.uint16)
    path = tmp_path / "class" / "image.png"
    path.parent.mkdir()
    path.write_bytes(encoded(Image.fromarray(stored), "PNG", orientation))
    upright = np.asarray(ImageOps.exif_transpose(Image.open(path)))
    step = -1 if flip else 1
    wanted = upright[3:28, 4:24][:, ::step]
    options: dict[str, Any] = {
        "size": (25, 20),
        "transforms": [CropBy(lambda *_: (3, 4, 25, 20)), RandomHorizontalFlip(p=float(flip))],
        "upright": True,
        "mode": "L",
    }
    for cached in ({}, {"cache": "1MB"}):
        for dtype, most in (("uint16", 1), ("float32", 65535), ("uint8", 1 / 256)):
            folder = ImageFolder(tmp_path, dtype=dtype, **options, **cached)
            for _ in range(2):
                found = folder[0][0][:, :, 0]
                exact = wanted >> 8 if dtype == "uint8" else wanted.astype(float) / most
                np.testing.assert_allclose(found, exact, rtol=1e-6)
    whole = Image.fromarray(upright.astype(np.float32) / np.float32(65535))
    found = decode(path, size=(9, 7), upright=True, mode="L", dtype="float32")
    resized = np.asarray(whole.resize((7, 9), Image.BILINEAR))
    np.testing.assert_allclose(found[:, :, 0], resized, atol=1e-5)


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("channels_first", [False, True])
def test_a_turned_jpeg_as_uint16_has_the_numbers_of_its_8_bits(
    orientation: int, channels_first: bool
) -> None:
    content = encoded(photograph(61, 90), orientation=orientation)
    layout = "channels_first" if channels_first else "channels_last"
    for size in (None, (19, 40)):
        wanted = decode(content, upright=True, size=size, exact=True).astype(np.uint16) * 257
        options: dict[str, Any] = {"upright": True, "exact": True, "layout": layout}
        found = Compose(size=size, dtype="uint16", **options).apply(content)
        found = found.transpose(1, 2, 0) if channels_first else found
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("width", "out_width"), [(70_000, 50_000), (200_000, 3), (9, 50_000)])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("channels_first", [False, True])
@pytest.mark.parametrize("with_table", [False, True])
def test_a_row_that_is_resized_in_parts_is_turned_whole(
    width: int, out_width: int, flip: bool, channels: int, channels_first: bool, with_table: bool
) -> None:
    image = np.random.default_rng(0).integers(0, 256, (3, width, channels), np.uint8)
    table = np.tile(np.arange(256, dtype=np.uint16), (channels, 1)) if with_table else None
    dtype = np.uint16 if with_table else np.uint8
    plain = np.empty((5, out_width, channels), np.uint8)
    render(image, (0, 3, 0, 3), (0, width, 0, width), plain)
    shape = (channels, out_width, 5) if channels_first else (out_width, 5, channels)
    out = np.empty(shape, dtype)
    spans = (0, width, 0, width), (0, 3, 0, 3)
    render(image, *spans, out, table, (flip, not flip), channels_first, True)
    found = out.transpose(1, 2, 0) if channels_first else out
    found = found[::-1] if flip else found[:, ::-1]
    np.testing.assert_array_equal(found, plain.transpose(1, 0, 2))
    # and a wide row of what is turned
    high = np.ascontiguousarray(image.transpose(1, 0, 2))
    shape = (channels, 5, out_width) if channels_first else (5, out_width, channels)
    out = np.empty(shape, dtype)
    render(high, *spans[::-1], out, table, (flip, not flip), channels_first, True)
    found = out.transpose(1, 2, 0) if channels_first else out
    found = found[::-1] if flip else found[:, ::-1]
    upright = np.empty((out_width, 5, channels), np.uint8)
    render(high, *spans, upright)
    np.testing.assert_array_equal(found, upright.transpose(1, 0, 2))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("limit", [999, 499])
def test_an_orientation_beyond_pillows_own_limit_is_no_upright_picture(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow finds the orientation of an unusual header, and warns or refuses by its own limit."""
    usual = encoded(photograph(40, 25), orientation=6)
    unusual = usual[:2] + b"\xff\xff" + usual[2:]
    assert jpeg_orientation(unusual) is None
    wanted = decode(usual, upright=True)
    assert decode(unusual, upright=True).shape == wanted.shape == (25, 40, 3)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(ImageError, match=r"JPEG, is beyond .* itself: .*MAX_IMAGE_PIXELS in each"):
        decode(unusual, upright=True, max_pixels=2**28)
    np.testing.assert_array_equal(decode(usual, upright=True), wanted)  # without Pillow
    assert decode(unusual).shape == (40, 25, 3)


# of 16 x 32 pixels, by libjpeg's `cjpeg -sample`: simplejpeg does not know these
RARE = {
    "4x2": (
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZG"
        "NywtQFdBRkxOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09P"
        "T09PT09PT09PT09PT09PT09PT09PT09PT0//wAARCAAQACADAUIAAhEBAxEB/8QAFgABAQEAAAAAAAAAAAAAAAAA"
        "BAMG/8QAGRAAAwEBAQAAAAAAAAAAAAAAAAMFYgER/8QAFQEBAQAAAAAAAAAAAAAAAAAAAQL/xAAYEQADAQEAAAAA"
        "AAAAAAAAAAAAAwUhMf/aAAwDAQACEQMRAD8AxqZmRyZmR6ZmRyZmS6ZmRyZmR6ZmRypvnPe8KS0ZlPmn/9k="
    ),
    "1x4": (
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZG"
        "NywtQFdBRkxOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09P"
        "T09PT09PT09PT09PT09PT09PT09PT09PT0//wAARCAAQACADARQAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAA"
        "AAb/xAAZEAEAAwEBAAAAAAAAAAAAAAAAAwViARH/xAAXAQEBAQEAAAAAAAAAAAAAAAADBQQG/8QAGREAAgMBAAAA"
        "AAAAAAAAAAAAAAMBAgRR/9oADAMBAAIRAxEAPwCNhrMrKGsyDPVljm1b39JuGsysoazIFqyxQVvf0nIazKyhrMgW"
        "rLFBW9/SbhrMrKKt8573gEltoiZKKt7+n//Z"
    ),
}


@pytest.mark.parametrize("sampling", list(RARE))
def test_grey_of_a_rare_subsampling_is_the_luminance_of_the_file(sampling: str) -> None:
    content = base64.b64decode(RARE[sampling])
    image = Image.open(io.BytesIO(content))
    assert (decode(content) == np.asarray(image.convert("RGB"))).all()
    image = Image.open(io.BytesIO(content))
    image.draft("L", image.size)
    wanted = np.asarray(image)
    assert wanted.std() > 20
    assert (decode(content, mode="L")[:, :, 0] == wanted).all()
    assert (decode(content, mode="L", crop=(3, 5, 9, 20))[:, :, 0] == wanted[3:12, 5:25]).all()


def exif_of(orientation: bytes, order: str = "<", kind: int = 3, count: int = 1) -> bytes:
    start = b"II*\0" if order == "<" else b"MM\0*"
    entry = struct.pack(f"{order}HHI", 0x0112, kind, count) + orientation
    return start + struct.pack(f"{order}IH", 8, 1) + entry + bytes(4)


def with_exif(exif: bytes) -> bytes:
    content = encoded(photograph(20, 30))
    part = b"Exif\0\0" + exif
    return content[:2] + b"\xff\xe1" + struct.pack(">H", len(part) + 2) + part + content[2:]


@pytest.mark.parametrize(
    ("exif", "answers"),
    [
        (exif_of(b"\6\0\0\0"), True),
        (exif_of(b"\0\6\0\0", ">"), True),
        (exif_of(b"\6\0\0\0", kind=4), False),
        (exif_of(b"\6\0\0\0", count=2), False),
        (exif_of(b"\6\0\0\0")[:14], False),
        (b"II*\0\xff\xff\xff\xff", False),
        (b"II*\0\x08\0\0\0\xff\xff", False),
        (b"?", False),
        (b"", False),
    ],
)
def test_the_orientation_is_that_of_pillow(exif: bytes, answers: bool) -> None:
    """Where the walk does not answer, Pillow is asked."""
    content = with_exif(exif)
    assert (jpeg_orientation(content) is not None) == answers
    wanted = upright_by_pillow(content).shape if answers else None
    found = decode(content, upright=True).shape
    assert found == (wanted or found)


# -- bytes behind and between -------------------------------------------------------------------


@pytest.mark.parametrize("behind", [b"\n", bytes(4096), TEXT, VIDEO, b"\xff", b"\xff\xd8\xff"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}])
def test_bytes_behind_a_jpeg_change_no_pixel(behind: bytes, options: Any) -> None:
    content = encoded(photograph(150, 200), **options)
    assert jpeg_end(content + behind) == len(content)
    for view in ({}, {"crop": (20, 30, 40, 50)}, {"size": (40, 50)}):
        np.testing.assert_array_equal(decode(content + behind, **view), decode(content, **view))


@pytest.mark.parametrize("marker", [0xDB, 0xC0, 0xC4, 0xDA])
@pytest.mark.parametrize("stray", [b"\0\1\2", b"\xff\xff\xff"])
def test_bytes_between_the_parts_of_a_header_change_no_pixel(marker: int, stray: bytes) -> None:
    content = encoded(photograph(60, 80))
    at = place_of(content, marker)
    odd = content[:at] + stray + content[at:]
    assert image_size(odd) == (60, 80)
    for view in ({}, {"crop": (20, 30, 10, 10)}, {"size": (20, 20)}):
        np.testing.assert_array_equal(decode(odd, **view), decode(content, **view))


def test_stray_bytes_do_not_hide_that_a_jpeg_is_cut_off() -> None:
    content = encoded(photograph(60, 80))
    at = place_of(content, 0xDB)
    odd = content[:at] + b"\0\1\2" + content[at : len(content) // 2 + at] + END
    with pytest.raises(ImageError, match=r"damaged JPEG file: .*premature end of data segment"):
        decode(odd)


@pytest.mark.parametrize("behind", [TEXT, VIDEO, bytes(4096), b"\xff\xe4\0\x30" + b"a note" * 8])
def test_a_lacking_end_marker_before_a_trailer_is_no_cut(behind: bytes) -> None:
    content = encoded(photograph(150, 200))
    assert jpeg_end(content[:-2] + behind) == 0
    for view in ({}, {"crop": (20, 30, 40, 50)}, {"size": (40, 50)}):
        np.testing.assert_array_equal(
            decode(content[:-2] + behind, **view), decode(content, **view)
        )


@pytest.mark.parametrize("behind", [b"", b"\n", TEXT, VIDEO, bytes(100_000)])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_a_cut_off_jpeg_with_a_trailer_stays_refused(behind: bytes, share: float) -> None:
    content = encoded(photograph(300, 400))
    cut = content[: int(share * len(content))] + behind
    for view in ({}, {"crop": (0, 0, 20, 20)}, {"size": (40, 50)}):
        with pytest.raises(ImageError, match="is a damaged JPEG file"):
            decode(cut, **view)


# -- Pillow's switch ----------------------------------------------------------------------------


@pytest.fixture
def _truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)


@pytest.mark.usefixtures("_truncated")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "TIFF"])
def test_with_pillows_switch_a_cut_off_file_is_read_as_by_pillow(kind: str) -> None:
    content = encoded(photograph(60, 80), kind)
    content = content[: len(content) // 2]
    wanted = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    assert away(decode(content), wanted).max() <= 3
    assert away(decode(content, crop=(40, 0, 20, 80)), wanted[40:]).max() <= 3


@pytest.mark.usefixtures("_truncated")
@pytest.mark.skipif(not features.check("jpg_2000"), reason="this Pillow lacks JPEG 2000")
def test_with_pillows_switch_a_jpeg_2000_without_a_tile_is_black_as_by_pillow() -> None:
    content = encoded(photograph(60, 80), "JPEG2000")
    content = content[: content.index(b"\xff\x93")]  # the start of the first tile's data
    wanted = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    np.testing.assert_array_equal(decode(content), wanted)
    assert not wanted.any()
