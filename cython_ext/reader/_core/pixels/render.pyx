"""Render parts of images without the GIL: decoded, resized, flipped and laid out.

Imports NumPy alone; the arithmetic is in render.h. Keeps no state but the opened libjpeg: any thread
may call it.
"""
import os

cimport numpy as cnp
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

cnp.import_array()

cdef extern from "reader/_core/pixels/render.h" nogil:
    struct rd_libjpeg:
        pass
    struct rd_span:
        double start
        double length
        int64_t low
        int64_t high
    struct rd_normal:
        pass
    struct rd_render:
        rd_span rows
        rd_span columns
        int64_t height
        int64_t width
        int channels
        int flips_rows
        int flips_columns
        int channels_first
        int is_turned
        int item
        const void* table
        rd_normal[3] normals
        void* out
    struct rd_jpeg_part:
        const uint8_t* content
        int64_t nbytes
        int64_t height
        int64_t width
        int factor
        int reads_all
    enum:
        RD_JPEG_TEXT
    void rd_find_normals(const float* tables, int channels, rd_normal* found)
    int64_t rd_jpeg_end(const uint8_t* content, int64_t nbytes)
    int rd_libjpeg_open(const char* path, rd_libjpeg* lib)
    int rd_libjpeg_fits(const rd_libjpeg* lib)
    int rd_render_jpeg(const rd_libjpeg& lib, rd_jpeg_part part, const rd_render& to, char* text) except +
    void rd_render_image(const uint8_t* pixels, int64_t pitch, const rd_render& to) except +


def jpeg_end(const uint8_t[::1] content not None):
    """Return where the image of a JPEG file ends, behind its end marker; 0: there is none, or something
    else comes before it, such as another file.

    >>> jpeg_end(b"\\xff\\xd8\\xff\\xda\\0\\2pixels\\xff\\xd9and a video")
    14
    """
    cdef int64_t end
    if content.shape[0] == 0:
        return 0
    with nogil:
        end = rd_jpeg_end(&content[0], content.shape[0])
    return end


cdef class Libjpeg:
    """An opened libjpeg-turbo, which decodes parts of images.

    Args:
        path: of the shared library, which stays open for good.

    Raises:
        OSError: it cannot be opened, or has another binary interface than that of libjpeg 6.2.
    """

    cdef rd_libjpeg lib

    def __init__(self, path):
        if rd_libjpeg_open(os.fsencode(path), &self.lib) or not rd_libjpeg_fits(&self.lib):
            raise OSError(f"{path} is no libjpeg-turbo with the interface of libjpeg 6.2")

    def render(self, const uint8_t[::1] content not None, size, int factor, rows, columns, out,
               table=None, flips=(False, False), bint channels_first=False, bint is_turned=False,
               bint reads_all=False):
        """Make `out` of a part of a JPEG; see the function `render`.

        Args:
            content: of the file.
            size: (height, width) as its header says.
            factor: 1, 2, 4 or 8: the spans are in pixels of the image at 1/factor of its size,
                rounded up.
            reads_all: decode the rows below the part, too: all pixels must be there, and the end
                marker or some other bytes behind them. For a file whose end is unknown.

        Returns:
            None: `out` was made. Otherwise the library's words for its error or for the damage that it
            found, or "" if it found another size: another decoder must make the image, or report the error.
            Bytes between two parts of the file are no damage.
        """
        cdef rd_render to
        cdef rd_jpeg_part part
        cdef bint is_made
        cdef char[RD_JPEG_TEXT] text
        text[0] = 0
        part.reads_all = reads_all
        part.height, part.width = size
        part.factor = factor
        part.content = &content[0] if content.shape[0] else NULL
        part.nbytes = content.shape[0]
        height, width = (part.height + factor - 1) // factor, (part.width + factor - 1) // factor
        kept = describe(&to, height, width, rows, columns, out, table, flips, channels_first,
                        is_turned)
        with nogil:
            is_made = rd_render_jpeg(self.lib, part, to, text)
        del kept
        return None if is_made else (<bytes>text).decode("ascii", "replace")


def render(const uint8_t[:, :, ::1] image not None, rows, columns, out, table=None,
           flips=(False, False), bint channels_first=False, bint is_turned=False):
    """Make `out` of a part of an image; all of it is written.

    Resizing is Pillow's bilinear filter: each pixel is the mean below a triangle as wide as two pixels of
    `out`, or of its four neighbours where the image grows, rounded to a whole number from 0 to 255. The
    results differ from Pillow's by rounding. Then rows and columns are exchanged or flipped, and numbers
    looked up.

    Args:
        image: height x width x channels, 1 or 3 of them.
        rows, columns: (start, length, low, high): the part that makes the rows and columns of
            `out`, in pixels, which may be fractions; no pixel outside of low to high - 1 is read.
        out: height x width x the same channels, or with `channels_first` channels x height x width;
            C-contiguous, of items of 1, 2, 4 or 8 bytes. It shares no memory with `image`.
        table: None, or an array of channels x 256 of the type of `out`: the value of each number.
        flips: (rows from bottom to top, columns from right to left), two bools.
        channels_first: how `out` is laid out.
        is_turned: the rows of `out` are columns of the image, and its columns rows of the image.

    Raises:
        ValueError: an array is empty or of another form, or the part leaves the image.

    >>> import numpy as np
    >>> out = np.empty((1, 2, 1), np.uint8)
    >>> image = np.array([[[0], [100], [200], [250]]], np.uint8)
    >>> render(image, (0, 1, 0, 1), (0, 4, 0, 4), out)
    >>> out[0, :, 0].tolist()
    [71, 207]
    """
    cdef rd_render to
    cdef int64_t height = image.shape[0], width = image.shape[1]
    kept = describe(&to, height, width, rows, columns, out, table, flips, channels_first, is_turned)
    if image.shape[2] != to.channels:
        raise ValueError(f"image has {image.shape[2]} channels, and out {to.channels}")
    with nogil:
        rd_render_image(&image[0, 0, 0], width * to.channels, to)
    del kept


cdef tuple describe(rd_render* to, int64_t height, int64_t width, rows, columns, out, table, flips,
                    bint channels_first, bint is_turned):
    """Fill in the output's description; return the objects to keep until it is made. Raises ValueError."""
    cdef cnp.ndarray target = out, numbers
    if target.ndim != 3 or not target.flags.c_contiguous or not target.flags.writeable:
        raise ValueError("out must be a writable C-contiguous array of three axes")
    shape = out.shape
    if channels_first:
        to.channels, to.height, to.width = shape
    else:
        to.height, to.width, to.channels = shape
    to.item = target.itemsize
    if to.channels not in (1, 3) or to.height < 1 or to.width < 1 or to.item not in (1, 2, 4, 8):
        raise ValueError(f"out must have 1 or 3 channels and a pixel or more, got {shape}")
    to.table = NULL
    memset(to.normals, 0, sizeof(to.normals))
    if table is not None:
        numbers = table
        if numbers.dtype != target.dtype or table.shape != (to.channels, 256) \
                or not numbers.flags.c_contiguous:
            raise ValueError(f"table must be {to.channels} x 256 of {target.dtype}")
        to.table = cnp.PyArray_DATA(numbers)
        if channels_first and cnp.PyArray_TYPE(numbers) == cnp.NPY_FLOAT32:
            rd_find_normals(<const float*>to.table, to.channels, to.normals)
    elif target.dtype != "uint8":
        raise ValueError(f"out of {target.dtype} needs a table")
    to.out = cnp.PyArray_DATA(target)
    to.flips_rows, to.flips_columns = flips
    to.channels_first = channels_first
    to.is_turned = is_turned
    if is_turned:
        height, width = width, height
    for span, size in ((rows, height), (columns, width)):
        start, length, low, high = span
        if not (0 <= low < high <= size and length > 0 and start + length > low - 1e-6
                and low - 1e-6 <= start and start + length <= high + 1e-6):
            raise ValueError(
                f"the part {span} does not lie within {size} pixels: (start, length, low, high)"
            )
    to.rows.start, to.rows.length, to.rows.low, to.rows.high = rows
    to.columns.start, to.columns.length, to.columns.low, to.columns.high = columns
    return target, table
