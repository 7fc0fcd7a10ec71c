"""Images resized into memory of the caller's.

Imports nothing; the arithmetic is in resample.h. Keeps no state: any thread may call it, and the GIL
is released meanwhile.
"""
from libc.stdint cimport int64_t, uint8_t

cdef extern from "reader/_core/collate/resample.h" nogil:
    void rd_resample_1 "rd_resample<1>"(
        const uint8_t*, int64_t, int64_t, double, double, double, double, uint8_t*, int64_t, int64_t
    ) except +
    void rd_resample_3 "rd_resample<3>"(
        const uint8_t*, int64_t, int64_t, double, double, double, double, uint8_t*, int64_t, int64_t
    ) except +


def resample(const uint8_t[:, :, ::1] image not None, box, uint8_t[:, :, ::1] out not None):
    """Resize a box of `image` into `out`, which is written whole.

    Each pixel is the mean of those below a triangle as wide as two pixels of `out`, or of its four
    neighbours where the image grows, as in Pillow's bilinear filter; no pixel outside of the box is
    read. The results differ from Pillow's by rounding.

    Args:
        image: height x width x channels, 1 or 3 of them.
        box: (top, left, height, width) in pixels of `image`, which may be fractions.
        out: height x width x the same channels; it shares no memory with `image`.

    Raises:
        ValueError: an array is empty, the channels are others, or the box leaves the image.

    >>> import numpy as np
    >>> out = np.empty((1, 2, 1), np.uint8)
    >>> resample(np.array([[[0], [100], [200], [250]]], np.uint8), (0, 0, 1, 4), out)
    >>> out[0, :, 0].tolist()
    [71, 207]
    """
    cdef double top, left, height, width
    cdef int64_t in_height = image.shape[0], in_width = image.shape[1], channels = image.shape[2]
    cdef int64_t out_height = out.shape[0], out_width = out.shape[1]
    top, left, height, width = box
    if not (channels == out.shape[2] and channels in (1, 3) and out_height > 0 and out_width > 0
            and top >= 0 and left >= 0 and height > 0 and width > 0
            and top + height <= in_height and left + width <= in_width):
        raise ValueError(
            f"cannot resize the box {box} of {in_height} x {in_width} x {channels} pixels to"
            f" {out_height} x {out_width} x {out.shape[2]}"
        )
    with nogil:
        if channels == 3:
            rd_resample_3(&image[0, 0, 0], in_height, in_width, top, left, height, width,
                          &out[0, 0, 0], out_height, out_width)
        else:
            rd_resample_1(&image[0, 0, 0], in_height, in_width, top, left, height, width,
                          &out[0, 0, 0], out_height, out_width)
