"""The kinds of files: which programs make each, and by which commands.

Imports nothing of the package. A kind is a row of KINDS; a new one is a new row. Its commands are
a shell's, which stops at the first that fails. They find these variables:

    $rgb $other     two pictures in color, PPM of 8 bits      $deep      the first, of 16 bits
    $grey           grey of 8 bits, PGM                       $deepgrey  grey of 16 bits
    $bits           black and white, PBM                      $rgba      with opacity, PAM
    $height $width  of all of these, in pixels                $profile   a color profile's bytes
    $out            the file to make                          $tmp       names for others: $tmp.x
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["KINDS", "PACKAGES", "Kind"]

#: The package of Debian that has a program: what `make image-programs` installs.
PACKAGES = {
    "apngasm": "apngasm",
    "avifenc": "libavif-bin",
    "cjpeg": "libjpeg-turbo-progs",
    "convert": "imagemagick",
    "cwebp": "webp",
    "exiftool": "libimage-exiftool-perl",
    "ffmpeg": "ffmpeg",
    "gifsicle": "gifsicle",
    "gm": "graphicsmagick",
    "heif-enc": "libheif-examples",
    "opj_compress": "libopenjp2-tools",
    "pamtotiff": "netpbm",
    "pngcrush": "pngcrush",
    "tiffcp": "libtiff-tools",
}


class Kind(NamedTuple):
    """One way to make a file.

    Attributes:
        name: of the kind: letters, digits and dashes.
        programs: what the commands start, words of PACKAGES.
        commands: a text for a shell; see the head of this file.
        ending: of the file's name.
    """

    name: str
    programs: str
    commands: str
    ending: str


def _table(text: str, ending: str) -> list[Kind]:
    """Return a row for each line: name | programs | commands."""
    rows = [line.split(" | ", 2) for line in text.splitlines() if line]
    return [Kind(name, programs, commands, ending) for name, programs, commands in rows]


_FFMPEG = "ffmpeg -v error -nostdin -threads 1 -y"

JPEG = _table(
    """
baseline | cjpeg | cjpeg -quality 90 -outfile $out $rgb
worst | cjpeg | cjpeg -quality 1 -outfile $out $rgb
best | cjpeg | cjpeg -quality 100 -optimize -dct float -outfile $out $rgb
smooth | cjpeg | cjpeg -smooth 30 -dct fast -outfile $out $rgb
progressive | cjpeg | cjpeg -progressive -outfile $out $rgb
arithmetic | cjpeg | cjpeg -arithmetic -outfile $out $rgb
arithmetic-progressive | cjpeg | cjpeg -arithmetic -progressive -outfile $out $rgb
arithmetic-restarts | cjpeg | cjpeg -arithmetic -restart 1 -outfile $out $rgb
restart-rows | cjpeg | cjpeg -restart 1 -outfile $out $rgb
restart-blocks | cjpeg | cjpeg -restart 3B -progressive -outfile $out $rgb
scans | cjpeg | printf '0;1;2;' >$tmp.scans; cjpeg -scans $tmp.scans -outfile $out $rgb
sample-444 | cjpeg | cjpeg -sample 1x1 -outfile $out $rgb
sample-422 | cjpeg | cjpeg -sample 2x1 -outfile $out $rgb
sample-440 | cjpeg | cjpeg -sample 1x2 -outfile $out $rgb
sample-411 | cjpeg | cjpeg -sample 4x1 -outfile $out $rgb
sample-441 | cjpeg | cjpeg -sample 1x4 -outfile $out $rgb
sample-410 | cjpeg | cjpeg -sample 4x2 -progressive -outfile $out $rgb
sample-mixed | cjpeg | cjpeg -sample 2x2,1x2,2x1 -outfile $out $rgb
grey | cjpeg | cjpeg -outfile $out $grey
grey-of-color | cjpeg | cjpeg -grayscale -progressive -outfile $out $rgb
grey-sampled | cjpeg | cjpeg -sample 2x2 -outfile $out $grey
rgb | cjpeg | cjpeg -rgb -outfile $out $rgb
rgb-sampled | cjpeg | cjpeg -rgb -sample 1x2 -outfile $out $rgb
comment | cjpeg | cjpeg $rgb >$tmp.c; wrjpgcom -comment 'it says: \xff\xd9' $tmp.c >$out
profile | cjpeg | cjpeg -icc $profile -outfile $out $rgb
turned-losslessly | cjpeg | cjpeg -sample 2x1 $rgb >$tmp.j; jpegtran -rotate 90 -outfile $out $tmp.j
cropped-losslessly | cjpeg | cjpeg $rgb >$tmp.j; jpegtran -progressive -flip vertical -outfile $out $tmp.j
line-break-behind | cjpeg | cjpeg $rgb >$out; printf '\\r\\n' >>$out
zeros-behind | cjpeg | cjpeg $rgb >$out; head -c 5000 /dev/zero >>$out
jpeg-behind | cjpeg | cjpeg $rgb >$out; cjpeg -grayscale $other >>$out
no-end | cjpeg | cjpeg $rgb >$tmp.j; head -c -2 $tmp.j >$out
no-end-zeros-behind | cjpeg | cjpeg $rgb >$tmp.j; head -c -2 $tmp.j >$out; head -c 900 /dev/zero >>$out
cut | cjpeg | cjpeg -quality 95 $rgb >$tmp.j; head -c $(( $(wc -c <$tmp.j) - 20 )) $tmp.j >$out
cut-in-header | cjpeg | cjpeg $rgb >$tmp.j; head -c 200 $tmp.j >$out
stray-bytes | cjpeg | cjpeg $rgb >$tmp.j; head -c 20 $tmp.j >$out; printf 'abc' >>$out; tail -c +21 $tmp.j >>$out
fill-bytes | cjpeg | cjpeg $rgb >$tmp.j; head -c 20 $tmp.j >$out; printf '\\377\\377\\377' >>$out; tail -c +21 $tmp.j >>$out
no-jfif | cjpeg | cjpeg $rgb >$tmp.j; head -c 2 $tmp.j >$out; tail -c +21 $tmp.j >>$out
progressive-cut | cjpeg | cjpeg -progressive -quality 95 $rgb >$tmp.j; head -c $(( $(wc -c <$tmp.j) - 90 )) $tmp.j >$out
magick | convert | convert $rgb -quality 85 jpg:$out
magick-420-interlaced | convert | convert $rgb -sampling-factor 4:2:0 -interlace Plane jpg:$out
magick-cmyk | convert | convert $rgb -colorspace CMYK jpg:$out
magick-cmyk-best | convert | convert $rgb -colorspace CMYK -quality 100 -sampling-factor 1x1 jpg:$out
gm-cmyk | gm | gm convert $rgb -colorspace CMYK -sampling-factor 2x2 jpg:$out
gm-grey | gm | gm convert $rgb -colorspace Gray -interlace Line jpg:$out
"""
    f"""
ffmpeg-420 | ffmpeg | {_FFMPEG} -i $rgb -pix_fmt yuvj420p $out
ffmpeg-422 | ffmpeg | {_FFMPEG} -i $rgb -pix_fmt yuvj422p -q:v 2 $out
ffmpeg-444 | ffmpeg | {_FFMPEG} -i $rgb -pix_fmt yuvj444p -huffman default $out
motion-photo | cjpeg ffmpeg | cjpeg $rgb >$out; {_FFMPEG} -i $rgb -s 32x32 -f mp4 $tmp.v; cat $tmp.v >>$out
preview | cjpeg exiftool | cjpeg $rgb >$out; cjpeg $other >$tmp.t; exiftool -q -overwrite_original "-ThumbnailImage<=$tmp.t" $out
notes | cjpeg exiftool | cjpeg $rgb >$out; exiftool -q -overwrite_original -XMP-dc:Title=a -IPTC:Keywords=b -Comment=c -Photoshop:XResolution=7 $out
profile-and-turn | cjpeg exiftool | cjpeg -icc $profile -outfile $out $rgb; exiftool -q -n -overwrite_original -Orientation=6 $out
turn-in-xmp | cjpeg exiftool | cjpeg $rgb >$out; exiftool -q -n -overwrite_original -XMP-tiff:Orientation=6 $out
turn-zeros-behind | cjpeg exiftool | cjpeg $rgb >$out; exiftool -q -n -overwrite_original -Orientation=8 $out; head -c 99 /dev/zero >>$out
turn-cmyk | convert exiftool | convert $rgb -colorspace CMYK jpg:$out; exiftool -q -n -overwrite_original -Orientation=5 $out
turn-progressive | cjpeg exiftool | cjpeg -progressive $rgb >$out; exiftool -q -n -overwrite_original -Orientation=7 -ExifByteOrder=II $out
turn-9 | cjpeg exiftool | cjpeg $rgb >$out; exiftool -q -n -overwrite_original -Orientation=9 $out
"""
    + "".join(
        f"turn-{turn} | cjpeg exiftool | cjpeg -sample {sample} $rgb >$out; exiftool -q -n"
        f" -overwrite_original -Orientation={turn} $out\n"
        for turn, sample in zip(
            range(1, 9), ("1x1", "2x2", "2x1", "1x2", "2x2", "2x1", "1x2", "1x1")
        )
    ),
    ".jpg",
)

PNG = _table(
    """
grey-1 | convert | convert $bits -define png:color-type=0 -define png:bit-depth=1 png:$out
grey-2 | convert | convert $grey -depth 2 -define png:color-type=0 -define png:bit-depth=2 png:$out
grey-4 | convert | convert $grey -depth 4 -define png:color-type=0 -define png:bit-depth=4 png:$out
grey-8 | convert | convert $grey -define png:color-type=0 -define png:bit-depth=8 png:$out
grey-16 | convert | convert $deepgrey -define png:color-type=0 -define png:bit-depth=16 png:$out
rgb-8 | convert | convert $rgb -define png:color-type=2 -define png:bit-depth=8 png:$out
rgb-16 | convert | convert $deep -define png:color-type=2 -define png:bit-depth=16 png:$out
palette-1 | convert | convert $rgb -colors 2 -define png:color-type=3 -define png:bit-depth=1 png:$out
palette-2 | convert | convert $rgb +dither -colors 4 -define png:color-type=3 -define png:bit-depth=2 png:$out
palette-4 | convert | convert $rgb +dither -colors 16 -define png:color-type=3 -define png:bit-depth=4 png:$out
palette-8 | convert | convert $rgb +dither -colors 200 -define png:color-type=3 png:$out
grey-alpha-8 | convert | convert $rgba -colorspace Gray -define png:color-type=4 -define png:bit-depth=8 png:$out
grey-alpha-16 | convert | convert $rgba -colorspace Gray -depth 16 -define png:color-type=4 -define png:bit-depth=16 png:$out
rgba-8 | convert | convert $rgba -define png:color-type=6 png:$out
rgba-16 | convert | convert $rgba -depth 16 -define png:color-type=6 -define png:bit-depth=16 png:$out
interlaced | convert | convert $rgb -interlace PNG png:$out
interlaced-16 | convert | convert $deepgrey -interlace PNG -define png:bit-depth=16 png:$out
tagged | convert | convert $rgb -gamma 0.7 -set gamma 0.7 -background red -set comment long -density 72 png:$out
clear-color | pamtotiff | pnmtopng -transparent '=rgb:ff/00/00' -interlace $rgb >$out
clear-grey | pamtotiff | pnmtopng -transparent '=rgb:80/80/80' -background 'rgb:11/11/11' $grey >$out
clear-bits | pamtotiff | pnmtopng -transparent white $bits >$out
pnm-16 | pamtotiff | pnmtopng -filter 4 $deep >$out
crushed | convert pngcrush | convert $rgba png:$tmp.png; pngcrush -q -brute $tmp.png $out
animated | apngasm convert | convert $rgb png:$tmp.1.png; convert $other png:$tmp.2.png; apngasm $out $tmp.1.png $tmp.2.png
turn-5 | convert exiftool | convert $rgb png:$out; exiftool -q -n -overwrite_original -Orientation=5 $out
turn-xmp-6 | convert exiftool | convert $rgba png:$out; exiftool -q -n -overwrite_original -XMP-tiff:Orientation=6 $out
cut | convert | convert $rgb png:$tmp.png; head -c $(( $(wc -c <$tmp.png) - 20 )) $tmp.png >$out
zeros-behind | convert | convert $rgb png:$out; head -c 99 /dev/zero >>$out
"""
    f"""
ffmpeg-animated | ffmpeg | {_FFMPEG} -i $rgb -i $other -filter_complex concat=n=2 -f apng $out
ffmpeg-ya8 | ffmpeg | {_FFMPEG} -i $rgba -pix_fmt ya8 $out
ffmpeg-bits | ffmpeg | {_FFMPEG} -i $rgb -pix_fmt monob $out
ffmpeg-palette | ffmpeg | {_FFMPEG} -i $rgba -pix_fmt pal8 $out
""",
    ".png",
)

GIF = _table(
    """
plain | convert | convert $rgb gif:$out
old | convert | convert $grey gif87:$out
interlaced | convert | convert $rgb -interlace GIF gif:$out
clear | convert | convert $rgba gif:$out
animated | convert | convert -delay 10 $rgb $other -loop 0 gif:$out
placed | convert | convert -page 90x70+11+5 $rgb -page 90x70+0+0 $other gif:$out
optimized | convert gifsicle | convert -delay 10 $rgb $other $rgb gif:$tmp.gif; gifsicle -O3 --colors 32 $tmp.gif -o $out
commented | convert gifsicle | convert $rgb gif:$tmp.gif; gifsicle --comment 'a comment' --interlace --transparent '#ff0000' $tmp.gif -o $out
bits | pamtotiff | pamtogif $bits >$out
sorted | pamtotiff | pnmquant 17 $rgb 2>$tmp.q | pamtogif -sort -transparent red >$out
page-larger | convert | convert -page 400x350+30+20 $rgba gif:$out
page-smaller | convert | convert -page 3x2+1+1 $rgb gif:$out
cut | convert | convert $rgb gif:$tmp.gif; head -c $(( $(wc -c <$tmp.gif) / 2 )) $tmp.gif >$out
"""
    f"""
ffmpeg | ffmpeg | {_FFMPEG} -i $rgb -i $other -filter_complex concat=n=2 $out
""",
    ".gif",
)

WEBP = _table(
    """
lossy | cwebp | cwebp -quiet -q 60 $rgb -o $out
lossless | cwebp | cwebp -quiet -lossless -z 3 $rgb -o $out
sharp | cwebp | cwebp -quiet -sharp_yuv -q 90 -sns 80 -segments 4 -partition_limit 50 $rgb -o $out
opacity | convert cwebp | convert $rgba png:$tmp.png; cwebp -quiet -q 70 $tmp.png -o $out
opacity-lossless | convert cwebp | convert $rgba png:$tmp.png; cwebp -quiet -lossless -exact $tmp.png -o $out
opacity-coarse | convert cwebp | convert $rgba png:$tmp.png; cwebp -quiet -alpha_q 5 -alpha_filter best $tmp.png -o $out
few-colors | convert cwebp | convert $rgb -colors 7 png:$tmp.png; cwebp -quiet -lossless $tmp.png -o $out
animated | convert cwebp | convert -delay 10 $rgb $other gif:$tmp.gif; gif2webp -quiet $tmp.gif -o $out
animated-mixed | cwebp convert | convert $rgb png:$tmp.1.png; convert $rgba png:$tmp.2.png; img2webp -mixed $tmp.1.png $tmp.2.png -o $out 2>$tmp.e >$tmp.e
animated-placed | convert cwebp | convert -page 400x350+11+5 $rgb -page 400x350+0+0 $rgba gif:$tmp.gif; gif2webp -quiet -mixed $tmp.gif -o $out
profile | cwebp | cwebp -quiet $rgb -o $tmp.w; webpmux -set icc $profile $tmp.w -o $out
turn-6 | cwebp exiftool | cwebp -quiet $rgb -o $out; exiftool -q -n -overwrite_original -Orientation=6 $out
turn-xmp-3 | cwebp exiftool | cwebp -quiet -lossless $rgb -o $out; exiftool -q -n -overwrite_original -XMP-tiff:Orientation=3 $out
magick | convert | convert $rgba -quality 80 webp:$out
cut | cwebp | cwebp -quiet -q 90 $rgb -o $tmp.w; head -c $(( $(wc -c <$tmp.w) * 2 / 3 )) $tmp.w >$out
"""
    f"""
ffmpeg | ffmpeg | {_FFMPEG} -i $rgb -c:v libwebp -lossless 1 $out
ffmpeg-animated | ffmpeg | {_FFMPEG} -i $rgb -i $other -filter_complex concat=n=2 -c:v libwebp_anim $out
""",
    ".webp",
)

# The height of a BMP is at byte 22, and below 0 where its first row is the upper one.
_TOP_DOWN = (
    r"""printf "$(printf '\\%03o\\%03o\\377\\377' $(( (65536 - height) % 256 ))"""
    r""" $(( (65536 - height) / 256 )))" | dd of=$out bs=1 seek=22 conv=notrunc status=none"""
)
BMP = _table(
    r"""
v2 | convert | convert $rgb bmp2:$out
v3-24 | convert | convert $rgb bmp3:$out
v3-1 | convert | convert $bits -monochrome bmp3:$out
v3-4 | convert | convert $rgb -colors 16 -type Palette bmp3:$out
v3-8 | convert | convert $rgb -colors 256 -type Palette bmp3:$out
v3-grey | convert | convert $grey bmp3:$out
v3-rle-8 | convert | convert $rgb -colors 256 -type Palette -compress RLE bmp3:$out
v3-rle-4 | convert | convert $rgb -colors 16 -type Palette -compress RLE bmp3:$out
v3-32 | convert | convert $rgba bmp3:$out
v4-24 | convert | convert $rgb bmp:$out
v4-32 | convert | convert $rgba bmp:$out
v5-16 | convert | convert $rgb -define bmp:subtype=RGB565 bmp:$out
v5-555 | convert | convert $rgb -define bmp:subtype=RGB555 bmp:$out
gm-24 | gm | gm convert $rgb bmp:$out
gm-8 | gm | gm convert $rgb -colors 100 -type Palette bmp:$out
gm-1 | gm | gm convert $bits -monochrome bmp3:$out
os2-4 | pamtotiff | pnmquant 15 $rgb 2>$tmp.q | ppmtobmp -os2 -bpp 4 >$out 2>$tmp.e
windows-8 | pamtotiff | pnmquant 250 $rgb 2>$tmp.q | ppmtobmp -windows >$out 2>$tmp.e
windows-1 | pamtotiff | ppmtobmp -windows -bpp 1 $bits >$out 2>$tmp.e
"""
    f"""
top-down-24 | convert | convert $rgb bmp3:$out; {_TOP_DOWN}
top-down-8 | convert | convert $grey bmp3:$out; {_TOP_DOWN}
cut | convert | convert $rgb bmp3:$tmp.bmp; head -c $(( $(wc -c <$tmp.bmp) - 5 )) $tmp.bmp >$out
ffmpeg-32 | ffmpeg | {_FFMPEG} -i $rgba -pix_fmt bgra $out
ffmpeg-565 | ffmpeg | {_FFMPEG} -i $rgb -pix_fmt rgb565le $out
ffmpeg-555 | ffmpeg | {_FFMPEG} -i $rgb -pix_fmt rgb555le $out
ffmpeg-444 | ffmpeg | {_FFMPEG} -i $rgb -pix_fmt rgb444le $out
ffmpeg-8 | ffmpeg | {_FFMPEG} -i $rgb -pix_fmt pal8 $out
ffmpeg-1 | ffmpeg | {_FFMPEG} -i $rgb -pix_fmt monob $out
""",
    ".bmp",
)

PNM = _table(
    """
p1 | pamtotiff | pnmtoplainpnm $bits >$out
p2 | pamtotiff | pnmtoplainpnm $grey >$out
p3 | pamtotiff | pnmtoplainpnm $rgb >$out
p2-16 | pamtotiff | pnmtoplainpnm $deepgrey >$out
p4 | convert | convert $bits pbm:$out
p5 | convert | convert $grey pgm:$out
p6 | gm | gm convert $rgb ppm:$out
p5-16 | convert | convert $deepgrey -depth 16 pgm:$out
p6-16 | pamtotiff | pamdepth 65535 $deep >$out 2>$tmp.e
p5-7 | pamtotiff | pamdepth 7 $grey >$out 2>$tmp.e
p6-100 | pamtotiff | pamdepth 100 $rgb >$out 2>$tmp.e
p5-1000 | pamtotiff | pamdepth 1000 $deepgrey >$out 2>$tmp.e
p6-1023 | pamtotiff | pamdepth 1023 $deep >$out 2>$tmp.e
commented | convert | convert $rgb -set comment 'a comment' ppm:$out
pam-rgba | convert | convert $rgba pam:$out
pfm-grey | convert | convert $grey pfm:$out
pfm-rgb | convert | convert $rgb pfm:$out
pfm-big | pamtotiff | pamtopfm -endian=big $grey >$out
cut | convert | convert $rgb ppm:$tmp.p; head -c $(( $(wc -c <$tmp.p) - 1 )) $tmp.p >$out
""",
    ".ppm",
)

_TIFF = "pamtotiff -truecolor -none -output=$tmp.tif $rgb 2>$tmp.e; tiffcp"
_TIFF_BITS = "pamtotiff -none -output=$tmp.tif $bits 2>$tmp.e; tiffcp"
TIFF = _table(
    "".join(
        f"{name} | pamtotiff tiffcp | {_TIFF} {options} $tmp.tif $out\n"
        for name, options in {
            "none": "-c none",
            "lzw": "-c lzw",
            "lzw-2": "-c lzw:2",
            "zip": "-c zip:2:p9",
            "packbits": "-c packbits",
            "lzma": "-c lzma",
            "zstd": "-c zstd",
            "webp": "-c webp",
            "jpeg": "-c jpeg -r 16",
            "jpeg-rgb": "-c jpeg:r:90 -r 8",
            "jpeg-tiles": "-c jpeg -t -w 16 -l 16",
            "lerc": "-c lerc",
            "tiles": "-c lzw -t -w 16 -l 32",
            "planes": "-c none -p separate",
            "planes-tiles": "-c zip -p separate -t -w 32 -l 16",
            "rows": "-c packbits -r 1",
            "big-endian": "-c lzw:2 -B",
            "bigtiff": "-c zip -8",
            "bigtiff-big-endian": "-c none -8 -B",
        }.items()
    )
    + "".join(
        f"bits-{name} | pamtotiff tiffcp | {_TIFF_BITS} {options} $tmp.tif $out\n"
        for name, options in {
            "none": "-c none",
            "g3": "-c g3:1d",
            "g3-2d": "-c g3:2d:fill",
            "g4": "-c g4",
            "lsb": "-c g4 -f lsb2msb",
            "packbits": "-c packbits -f lsb2msb",
        }.items()
    )
    + """
bits-white | pamtotiff | pamtotiff -miniswhite -output=$out $bits 2>$tmp.e
grey-white | pamtotiff | pamtotiff -miniswhite -output=$out $grey 2>$tmp.e
grey-16-white | pamtotiff | pamtotiff -miniswhite -output=$out $deepgrey 2>$tmp.e
indexed-4 | pamtotiff | pnmquant 13 $rgb 2>$tmp.q | pamtotiff -indexbits=4 -lzw -output=$out 2>$tmp.e
indexed-8 | pamtotiff | pnmquant 200 $rgb 2>$tmp.q | pamtotiff -indexbits=8 -output=$out 2>$tmp.e
grey-2 | convert | convert $grey -colorspace Gray -depth 2 -compress None tiff:$out
grey-4 | convert | convert $grey -colorspace Gray -depth 4 -compress LZW tiff:$out
grey-8 | convert | convert $grey -compress Zip tiff:$out
grey-12 | convert | convert $deepgrey -depth 12 -compress None tiff:$out
grey-16 | convert | convert $deepgrey -depth 16 -compress Zip tiff:$out
grey-16-big | convert | convert $deepgrey -depth 16 -endian MSB -compress LZW tiff:$out
grey-32 | convert | convert $deepgrey -depth 32 -compress None tiff:$out
grey-float-16 | convert | convert $grey -define quantum:format=floating-point -depth 16 -compress Zip tiff:$out
grey-float-32 | convert | convert $grey -define quantum:format=floating-point -depth 32 -compress LZW tiff:$out
grey-float-64 | convert | convert $grey -define quantum:format=floating-point -depth 64 -compress Zip tiff:$out
grey-alpha | convert | convert $rgba -colorspace Gray tiff:$out
rgb-16 | convert | convert $deep -depth 16 tiff:$out
rgb-16-big | convert | convert $deep -depth 16 -endian MSB tiff:$out
rgb-4 | convert | convert $rgb -depth 4 -compress None tiff:$out
rgb-32 | convert | convert $deep -depth 32 tiff:$out
rgb-float | convert | convert $rgb -define quantum:format=floating-point -depth 32 -compress Zip tiff:$out
rgba | convert | convert $rgba tiff:$out
rgba-associated | convert | convert $rgba -define tiff:alpha=associated tiff:$out
rgba-16 | convert | convert $rgba -depth 16 -compress Zip tiff:$out
cmyk | convert | convert $rgb -colorspace CMYK tiff:$out
cmyk-16 | convert | convert $rgb -colorspace CMYK -depth 16 tiff:$out
lab | convert | convert $rgb -colorspace Lab tiff:$out
lab-16 | convert | convert $deep -colorspace Lab -depth 16 tiff:$out
ycbcr | convert | convert $rgb -colorspace YCbCr -compress None tiff:$out
magick-jpeg | convert | convert $rgb -compress JPEG -quality 90 tiff:$out
magick-bigtiff | convert | convert $rgb tiff64:$out
pyramid | convert | convert $rgb -define tiff:tile-geometry=64x64 ptif:$out
gm-grey | gm | gm convert $grey -compress RLE tiff:$out
pages | pamtotiff tiffcp | pamtotiff -output=$tmp.1 $rgb 2>$tmp.e; pamtotiff -output=$tmp.2 $grey 2>$tmp.e; tiffcp -c lzw $tmp.1 $tmp.2 $out
turn-6 | pamtotiff tiffcp | pamtotiff -truecolor -output=$out $rgb 2>$tmp.e; tiffset -s 274 6 $out
turn-3 | pamtotiff tiffcp | pamtotiff -output=$out $grey 2>$tmp.e; tiffset -s 274 3 $out
turn-8-g4 | pamtotiff tiffcp | pamtotiff -g4 -output=$out $bits 2>$tmp.e; tiffset -s 274 8 $out
turn-5-16 | pamtotiff tiffcp | pamtotiff -lzw -output=$out $deepgrey 2>$tmp.e; tiffset -s 274 5 $out
tagged | convert exiftool | convert $rgb tiff:$out; exiftool -q -overwrite_original -Artist=a -XMP-dc:Title=b -IPTC:Keywords=c "-icc_profile<=$profile" $out
cut | convert | convert $rgb -compress None tiff:$tmp.t; head -c $(( $(wc -c <$tmp.t) / 2 )) $tmp.t >$out
"""
    + "".join(
        f"ffmpeg-{form} | ffmpeg | {_FFMPEG} -i ${source} -pix_fmt {form} {options} $out\n"
        for form, source, options in (
            ("rgb24", "rgb", "-compression_algo deflate"),
            ("rgb48le", "deep", "-compression_algo raw"),
            ("rgba64le", "rgba", ""),
            ("gray16le", "deepgrey", "-compression_algo lzw"),
            ("ya8", "rgba", ""),
            ("pal8", "rgb", ""),
            ("monow", "rgb", ""),
            ("yuv444p", "rgb", "-compression_algo raw"),
            ("yuv420p", "rgb", "-compression_algo raw"),
        )
    ),
    ".tif",
)

# Kinds that Pillow's wheels read, or a library beside it, also under the name of a JPEG.
AVIF = _table(
    """
lossy | avifenc convert | convert $rgb png:$tmp.png; avifenc -s 10 -j 1 $tmp.png $out >$tmp.e
opacity | avifenc convert | convert $rgba png:$tmp.png; avifenc -s 10 -j 1 --min 0 --max 0 $tmp.png $out >$tmp.e
deep | avifenc convert | convert $deep png:$tmp.png; avifenc -s 10 -j 1 -d 10 -y 420 $tmp.png $out >$tmp.e
turned | avifenc convert | convert $rgb png:$tmp.png; avifenc -s 10 -j 1 --irot 1 $tmp.png $out >$tmp.e
mirrored | avifenc convert | convert $rgb png:$tmp.png; avifenc -s 10 -j 1 --imir 0 $tmp.png $out >$tmp.e
grey | avifenc convert | convert $grey png:$tmp.png; avifenc -s 10 -j 1 -y 400 $tmp.png $out >$tmp.e
""",
    ".avif",
)
AVIF_AS_JPEG = [AVIF[0]._replace(name="named-jpeg", ending=".jpg")]
JPEG_2000 = _table(
    """
lossless | opj_compress | opj_compress -i $rgb -n 1 -o $tmp.jp2 >$tmp.e; mv $tmp.jp2 $out
lossy | opj_compress | opj_compress -i $rgb -n 1 -o $tmp.jp2 -I -r 8 >$tmp.e; mv $tmp.jp2 $out
bare | opj_compress | opj_compress -i $rgb -n 1 -o $tmp.j2k >$tmp.e; mv $tmp.j2k $out
tiles | opj_compress | opj_compress -i $rgb -n 1 -o $tmp.jp2 -t 32,32 >$tmp.e; mv $tmp.jp2 $out
grey | opj_compress | opj_compress -i $grey -n 1 -o $tmp.jp2 >$tmp.e; mv $tmp.jp2 $out
grey-16 | opj_compress | opj_compress -i $deepgrey -n 1 -o $tmp.jp2 >$tmp.e; mv $tmp.jp2 $out
rgb-16 | opj_compress | opj_compress -i $deep -n 1 -o $tmp.jp2 >$tmp.e; mv $tmp.jp2 $out
magick-rgba | convert | convert $rgba jp2:$out
"""
    f"""
ffmpeg | ffmpeg | {_FFMPEG} -i $rgb -c:v jpeg2000 $out
""",
    ".jp2",
)
HEIC = _table(
    """
lossy | heif-enc convert | convert $rgb png:$tmp.png; heif-enc -q 60 $tmp.png -o $out >$tmp.e
opacity | heif-enc convert | convert $rgba png:$tmp.png; heif-enc -q 60 $tmp.png -o $out >$tmp.e
""",
    ".heic",
)

# Kinds of older programs and of games.
OLDER = [
    Kind(f"{form}-{of}-{name}", name, f"{command} ${of} {options} {form}:$out", f".{form}")
    for name, command, rows in (
        (
            "convert",
            "convert",
            (
                ("tga", "rgb grey rgba bits", "-compress None"),
                ("pcx", "rgb grey bits", ""),
                ("xpm", "bits", ""),
                ("sgi", "rgb grey rgba deep", "-compress None"),
                ("sun", "rgb grey bits", ""),
                ("psd", "rgb grey rgba", ""),
                ("ico", "rgb rgba", ""),
                ("dds", "rgb rgba", "-define dds:compression=none"),
            ),
        ),
        (
            "gm",
            "gm convert",
            (
                ("tga", "rgb grey rgba", "-compress RLE"),
                ("pcx", "rgb grey", ""),
                ("sgi", "rgb grey", "-compress RLE"),
                ("sun", "rgb grey", ""),
            ),
        ),
    )
    for form, pictures, options in rows
    for of in pictures.split()
] + [
    Kind(f"{form}-ffmpeg", "ffmpeg", f"{_FFMPEG} -i $rgb {options} $out", f".{form}")
    for form, options in {"tga": "", "pcx": "", "sgi": "", "qoi": "", "sun": ""}.items()
]

# Kinds that `reader.images` does not read, each in words of its own.
OTHERS = [
    Kind(f"{form}-{program}", program, f"{command} $rgb {form}:$out", f".{form}")
    for program, command in (("convert", "convert"), ("gm", "gm convert"))
    for form in ("miff", "fits")
] + [
    Kind(f"{form}-ffmpeg", "ffmpeg", f"{_FFMPEG} -i $rgb {options} $out", f".{form}")
    for form, options in {
        "jxl": "-frames:v 1",
        "exr": "",
        "dpx": "",
        "mp4": "-s 64x64",
        "jls": "-c:v jpegls",
    }.items()
]

KINDS = [
    kind._replace(name=f"{family}-{kind.name}")
    for family, kinds in {
        "jpeg": JPEG,
        "png": PNG,
        "gif": GIF,
        "webp": WEBP,
        "bmp": BMP,
        "pnm": PNM,
        "tiff": TIFF,
        "avif": [*AVIF, *AVIF_AS_JPEG],
        "jpeg2000": JPEG_2000,
        "heic": HEIC,
        "older": OLDER,
        "other": OTHERS,
    }.items()
    for kind in kinds
]
