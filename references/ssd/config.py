"""What may be asked of the single-shot detection benchmark.

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Model:
    """The shape of the network and its prior boxes.

    image_size           pixels of the square that the model sees
    stem_width, stem_kernel, stem_stride, stem_pool   first convolution; 3x3/2 max pooling after it
    widths, blocks, strides   per stage: channels, basic blocks, stride of its first block
    extra                per further feature map: channels of its 1x1 and of its 3x3 convolution, stride
                         and padding of the latter
    num_classes          without the background
    feature_sizes, feature_steps   per map: places per side, pixels from one place to the next
    scales               pixels; one more than there are maps
    aspect_ratios        per map: further shapes, each with its transpose
    """

    image_size: int
    stem_width: int
    stem_kernel: int
    stem_stride: int
    stem_pool: bool
    widths: list[int]
    blocks: list[int]
    strides: list[int]
    extra: list[list[int]]
    num_classes: int
    feature_sizes: list[int]
    feature_steps: list[int]
    scales: list[int]
    aspect_ratios: list[list[int]]
