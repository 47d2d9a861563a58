"""Decoder of untrusted images."""

from __future__ import annotations

import struct

from PIL import Image

FAULTS = (
    *(
        OSError,
        EOFError,
        ValueError,
        IndexError,
        KeyError,
        TypeError,
        OverflowError,
        MemoryError,
        SyntaxError,
    ),
    *(struct.error, Image.DecompressionBombError),
)
"""Errors of Pillow for images that are cut or changed, or larger than it decodes."""
