"""What batches of a domain cost: pictures, boxes, sound, tokens, tables; ours beside its peers'.

    python -m tools.domain_bench WORK [--rounds 5] [--json FILE] [the work's own options]

    resized, training, validation, decoders   [--files 256] [--scale 1]
    phones, detection, audio
    tokens                                    [--tokens 2e8]
    tables                                    [--rows 5e6]

All contestants of a work take their turns in one run, each with 2 workers or threads; medians of
the rounds are shown. `work` says what a work is; a module of each
work makes its files and its contestants, and says what is measured. A peer that cannot be imported
is left out, with the reason. Those that no file below requirements/ brings:

    pip install spdl nvidia-dali-cuda120
    pip install torchvision opencv-python-headless imagecodecs kornia-rs

SPDL takes the FFmpeg of the system: apt-get install ffmpeg. DALI needs no GPU here.
"""
