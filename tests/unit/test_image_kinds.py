"""Kinds of image files that few have, or that not every Pillow reads: from TGA to HEIC."""

from __future__ import annotations

import io
import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ImageError
from reader.frameworks import pillow
from reader.images import ImageFolder, decode, image_size, kinds

Image = pytest.importorskip("PIL.Image")
features = pytest.importorskip("PIL.features")
pytest.importorskip("simplejpeg")

HAS_HEIF = find_spec("pillow_heif") is not None
HEIC_HEAD = b"\0\0\0\x1cftypmif1\0\0\0\0mif1heicmiaf"


def picture() -> Any:
    y, x = np.mgrid[:40, :60]
    return Image.fromarray(np.stack([x * 4, y * 6, (x + y) * 2], 2).astype(np.uint8))


def encoded(kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture().save(file, kind, **options)
    return file.getvalue()


def files() -> dict[str, bytes]:
    found = {"BigTIFF": encoded("TIFF", big_tiff=True)}
    supported = features.get_supported()
    if "avif" in supported:
        found["AVIF"] = encoded("AVIF")
    if "jpg_2000" in supported:
        found["JPEG 2000"] = encoded("JPEG2000")
        found["JPEG 2000 without boxes"] = encoded("JPEG2000", no_jp2=True)
    return found


FILES = files()
XPM = b'/* XPM */\nstatic char *x[] = {\n"2 1 2 1",\n"a c #FF0000",\n"b c #00FF00",\n"ab"\n};\n'
SUN = struct.pack(">8I", 0x59A66A95, 2, 1, 24, 6, 1, 0, 0) + bytes((3, 2, 1, 6, 5, 4))
PSD = struct.pack(">4sH6xHIIHHIIIH", b"8BPS", 1, 3, 1, 2, 8, 3, 0, 0, 0, 0) + bytes(range(6))
OLDER = {
    "TGA": encoded("TGA"),
    "TGA with runs": encoded("TGA", compression="tga_rle"),
    "PCX": encoded("PCX"),
    "SGI": encoded("SGI"),
    "DDS": encoded("DDS"),
    "ICO": encoded("ICO", sizes=[(60, 40)]),
    "ICO of pixels": encoded("ICO", sizes=[(60, 40)], bitmap_format="bmp"),
    "QOI": b"qoif"
    + struct.pack(">IIBB", 40, 60, 3, 0)
    + b"\xfe\1\2\3"
    + b"\xc0" * 2399
    + bytes(7)
    + b"\1",
    "PSD": PSD,
    "XPM": XPM,
    "Sun raster": SUN,
}


@pytest.mark.parametrize("name", list(FILES))
def test_a_kind_is_read_as_by_pillow_whatever_its_name(name: str, tmp_path: Path) -> None:
    content = FILES[name]
    wanted = Image.open(io.BytesIO(content)).convert("RGB")
    path = tmp_path / "class" / "phone.jpg"
    path.parent.mkdir()
    path.write_bytes(content)
    assert image_size(path) == (40, 60)
    assert (decode(path) == np.asarray(wanted)).all()
    assert (decode(content, crop=(5, 7, 20, 30)) == np.asarray(wanted)[5:25, 7:37]).all()
    assert (decode(content, mode="L")[:, :, 0] == np.asarray(wanted.convert("L"))).all()
    assert (decode(content, upright=True) == np.asarray(wanted)).all()
    small = ImageFolder(tmp_path, size=(10, 15), cache="10MB")
    first = small[0][0]
    assert (first == decode(content, size=(10, 15))).all()
    assert (small[0][0] == first).all()


@pytest.mark.parametrize("name", list(OLDER))
def test_an_older_kind_is_read_as_by_pillow(name: str) -> None:
    content = OLDER[name]
    image = Image.open(io.BytesIO(content))
    wanted = np.asarray(image.convert("RGB"))
    assert wanted.std() > 0 or name == "QOI"
    assert image_size(content) == wanted.shape[:2]
    found = decode(content)
    assert (found == wanted).all()
    assert (decode(content, crop=(0, 1, 1, 1)) == wanted[:1, 1:2]).all()
    assert (decode(content, mode="L")[:, :, 0] == np.asarray(image.convert("L"))).all()
    for length in range(1, len(content), max(1, len(content) // 200)):
        try:  # what is left out may be padding
            assert (decode(content[:length]) == wanted).all()
        except ImageError as error:
            assert "damaged" in str(error) or "none of" in str(error)  # noqa: PT017


def test_an_icon_with_a_huge_picture_is_refused_before_it_is_decoded() -> None:
    content = OLDER["ICO"].replace(struct.pack(">II", 60, 40), struct.pack(">II", 1 << 26, 1), 1)
    for read in decode, image_size:
        with pytest.raises(ImageError, match=r"ICO file: .* 1 x 67108864 pixels, and 1024 is the"):
            read(content)


def test_text_and_tables_are_no_tga() -> None:
    for content in (b"a text that is long enough\n", bytes(range(40, 99)), np.arange(99).tobytes()):
        with pytest.raises(ImageError, match=r"is none of JPEG, .*: it begins with"):
            decode(content)


@pytest.mark.parametrize("name", list(FILES))
@pytest.mark.filterwarnings("ignore:Corrupt EXIF data:UserWarning")  # Pillow, of a cut off TIFF
def test_a_kind_cut_off_anywhere_is_an_error_by_name(name: str) -> None:
    content = FILES[name]
    for length in range(1, len(content), max(1, len(content) // 400)):
        with pytest.raises(ImageError, match=r"damaged|none of"):
            decode(content[:length])


@pytest.mark.parametrize("name", [name for name in FILES if "TIFF" not in name])
def test_what_this_pillow_lacks_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pillow, "supported", frozenset)
    text = "kind (AVIF|JPEG 2000), which this Pillow cannot read: .*is missing. Install Pillow"
    for read in decode, image_size:
        with pytest.raises(ImageError, match=text):
            read(FILES[name])


@pytest.mark.skipif(HAS_HEIF, reason="pillow-heif is installed")
def test_a_heic_file_without_pillow_heif_says_what_to_install() -> None:
    text = "kind HEIC, which pillow-heif reads, .* imported: .*Run: pip install pillow-heif; or"
    for read in decode, image_size:
        with pytest.raises(ImageError, match=text):
            read(HEIC_HEAD)


@pytest.mark.skipif(not HAS_HEIF, reason="pillow-heif is not installed")
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_heic_file_is_read_as_by_pillow_heif(orientation: int) -> None:
    import pillow_heif

    exif = Image.Exif()
    exif[0x0112] = orientation
    image = picture()
    image.info["exif"] = exif.tobytes()
    file = io.BytesIO()
    pillow_heif.from_pillow(image).save(file)
    content = file.getvalue()
    wanted = np.asarray(pillow_heif.open_heif(file).to_pillow())
    assert image_size(content) == wanted.shape[:2]
    for upright in False, True:
        assert (decode(content, upright=upright) == wanted).all()
    assert "HEIF" not in Image.OPEN  # Pillow stays as it was
    with pytest.raises(ImageError, match="damaged HEIC file"):
        decode(content[: len(content) // 2])


def test_a_brand_may_stand_behind_a_general_one() -> None:
    assert kinds.find_kind(HEIC_HEAD, "x") == "HEIC"
    assert kinds.find_kind(b"\0\0\0\x18ftypmif1\0\0\0\0mif1avif", "x") == "AVIF"
    assert kinds.find_kind(b"\xff\xff\xff\xffftypavis", "x") == "AVIF"  # no length is believed
    with pytest.raises(ImageError, match="of the kind HEIF or video"):
        kinds.find_kind(b"\0\0\0\x10ftypisom\0\0\0\0avif", "x")  # behind the box


def test_an_empty_file_is_told_to_be_made_anew() -> None:
    with pytest.raises(ImageError, match=r"is no image: it is empty.*anew, or leave it out"):
        decode(b"")
