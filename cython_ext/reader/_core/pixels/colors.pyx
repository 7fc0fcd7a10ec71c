"""Colors of an image of 8 bits, changed in place or into another image, without the GIL.

Imports nothing; the arithmetic is in colors.h, and is Pillow's. Keeps no state: any thread may call it.
An image is height x width x channels, 3 of them or 1, C-contiguous.
"""
from libc.stdint cimport int64_t, uint8_t

cdef extern from "reader/_core/pixels/colors.h" nogil:
    void rd_look_up(uint8_t* pixels, int64_t n, int channels, const uint8_t* table)
    void rd_count(const uint8_t* pixels, int64_t n, int channels, int64_t* counts)
    int64_t rd_sum_grey(const uint8_t* pixels, int64_t n, int channels)
    void rd_saturate(uint8_t* pixels, int64_t n, float factor)
    void rd_shift_hue(uint8_t* pixels, int64_t n, uint8_t shift)
    void rd_sharpen(const uint8_t* pixels, int64_t height, int64_t width, int channels, float factor,
                    uint8_t* out)
    void rd_warp(const uint8_t* pixels, int64_t height, int64_t width, int channels,
                 const double* map, const uint8_t* fill, uint8_t* out)


cdef int64_t pixels_of(const uint8_t[:, :, ::1] image, channels=(1, 3)) except -1:
    """Return how many pixels an image has. Raises ValueError."""
    if image.shape[2] not in channels or not image.shape[0] * image.shape[1]:
        raise ValueError(f"an image of {image.shape[0]} x {image.shape[1]} x {image.shape[2]} is not taken")
    return image.shape[0] * image.shape[1]


def look_up(uint8_t[:, :, ::1] image not None, const uint8_t[:, ::1] table not None):
    """Replace each number n of channel c by ``table[c, n]``, in place.

    Raises:
        ValueError: `table` is not channels x 256, or the image is empty.
    """
    cdef int64_t n = pixels_of(image)
    if table.shape[0] != image.shape[2] or table.shape[1] != 256:
        raise ValueError(f"table must be {image.shape[2]} x 256")
    with nogil:
        rd_look_up(&image[0, 0, 0], n, <int>image.shape[2], &table[0, 0])


def count(const uint8_t[:, :, ::1] image not None, int64_t[:, ::1] counts not None):
    """Add to ``counts[c, n]`` how often number n occurs in channel c.

    Raises:
        ValueError: `counts` is not channels x 256, or the image is empty.
    """
    cdef int64_t n = pixels_of(image)
    if counts.shape[0] != image.shape[2] or counts.shape[1] != 256:
        raise ValueError(f"counts must be {image.shape[2]} x 256")
    with nogil:
        rd_count(&image[0, 0, 0], n, <int>image.shape[2], &counts[0, 0])


def mean_grey(const uint8_t[:, :, ::1] image not None):
    """Return the mean luminance of an image, from 0 to 255. Raises ValueError: it is empty."""
    cdef int64_t n = pixels_of(image), found
    with nogil:
        found = rd_sum_grey(&image[0, 0, 0], n, <int>image.shape[2])
    return found / <double>n


def saturate(uint8_t[:, :, ::1] image not None, float factor):
    """Mix an image with its grey, in place: 0 makes it grey, 1 leaves it.

    Raises:
        ValueError: it has not 3 channels, or is empty.
    """
    cdef int64_t n = pixels_of(image, (3,))
    with nogil:
        rd_saturate(&image[0, 0, 0], n, factor)


def shift_hue(uint8_t[:, :, ::1] image not None, uint8_t shift):
    """Turn the hue by `shift` / 256 of the circle of colors, in place.

    Raises:
        ValueError: the image has not 3 channels, or is empty.
    """
    cdef int64_t n = pixels_of(image, (3,))
    with nogil:
        rd_shift_hue(&image[0, 0, 0], n, shift)


def sharpen(const uint8_t[:, :, ::1] image not None, float factor, uint8_t[:, :, ::1] out not None):
    """Write to `out` the image mixed with its smoothed self: 0 is smooth, 1 the image, 2 sharper.

    Raises:
        ValueError: the two differ in shape, or are empty.
    """
    check_alike(image, out)
    with nogil:
        rd_sharpen(&image[0, 0, 0], image.shape[0], image.shape[1], <int>image.shape[2], factor, &out[0, 0, 0])


def warp(const uint8_t[:, :, ::1] image not None, numbers, fill, uint8_t[:, :, ::1] out not None):
    """Take each pixel of `out` by an affine map, from the nearest pixel of `image`.

    Args:
        image, out: of one shape; they share no memory.
        numbers: six numbers: the pixel (x, y) comes from (m0 x + m1 y + m2, m3 x + m4 y + m5).
        fill: a number for each channel, for pixels that come from outside of the image.

    Raises:
        ValueError: the two differ in shape, or are empty.
    """
    cdef double[6] affine
    cdef uint8_t[3] color
    check_alike(image, out)
    affine[0], affine[1], affine[2], affine[3], affine[4], affine[5] = numbers
    for channel in range(image.shape[2]):
        color[channel] = fill[channel]
    with nogil:
        rd_warp(&image[0, 0, 0], image.shape[0], image.shape[1], <int>image.shape[2], affine, color,
                &out[0, 0, 0])


cdef int check_alike(const uint8_t[:, :, ::1] image, uint8_t[:, :, ::1] out) except -1:
    pixels_of(image)
    if (image.shape[0], image.shape[1], image.shape[2]) != (out.shape[0], out.shape[1], out.shape[2]):
        raise ValueError("out must have the shape of the image")
    return 0
