"""Triton's kernels compiled to the machine code of a GPU, which takes none: its interpreter accepts more than its
compiler. In a process of its own, because Triton reads its environment when it is imported."""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from train_bench.references.parts import layerwise_kernels, transducer_kernels

GPU = GPUTarget("cuda", 90, 32)

OF_TENSORS = {
    **dict.fromkeys(("addresses", "sizes", "owners", "firsts"), "*i64"),
    **dict.fromkeys(("squares", "ratios"), "*fp32"),
}
OF_LATTICES = {
    **dict.fromkeys(("blank", "label"), "*fp32"),
    **dict.fromkeys(("frame_counts", "label_counts"), "*i64"),
    **dict.fromkeys(("forward", "likelihood", "backward", "blank_taken", "label_taken"), "*fp64"),
    **dict.fromkeys(("frames", "columns"), "i32"),
}


def compiled(kernel: Any, types: dict[str, str], **constants: Any) -> None:
    """Compile a kernel whose other arguments are numbers in float32."""
    fixed = {name: value for name, value in constants.items() if name in kernel.arg_names}
    signature = {name: "constexpr" if name in fixed else types.get(name, "fp32") for name in kernel.arg_names}
    triton.compile(ASTSource(kernel, signature, fixed), target=GPU)


if __name__ == "__main__":
    sizes = {"BLOCK": layerwise_kernels.BLOCK, "SUMS": layerwise_kernels.SUMS}
    for name in ("_lamb_moments", "_lamb_ratios", "_lamb_update", "_squares", "_lars_ratios", "_lars_update"):
        for adapted in (True, False):
            compiled(getattr(layerwise_kernels, name), OF_TENSORS, ADAPTED=adapted, **sizes)
    for name in ("_forward", "_backward"):
        compiled(getattr(transducer_kernels, name), OF_LATTICES, WIDTH=256)
