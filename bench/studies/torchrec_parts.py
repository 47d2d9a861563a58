"""Dense parts and start weights of DLRM-DCNv2 beside those of torchrec 0.3.2, the version that its published reference
trains with.

pip download --no-deps torchrec==0.3.2 && unzip -d torchrec_0_3_2 torchrec-0.3.2-*.whl
python bench/studies/torchrec_parts.py torchrec_0_3_2

The package's kernels do not load beside a torch of today, so its modules are imported one by one without them.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import Tensor, nn

from train_bench.references.dlrm_dcnv2.model import CrossLayer, Dense

ABSENT = (
    *("fbgemm_gpu", "fbgemm_gpu.split_embedding_configs", "fbgemm_gpu.split_table_batched_embeddings_ops"),
    *("pyre_extensions", "torchrec.datasets", "torchrec.datasets.utils"),
)
SHAPE: Any = SimpleNamespace(
    rows=[5, 6, 7], bottom=[16, 8], dense_features=4, cross_rank=6, cross_layers=3, top=[10, 9, 1]
)


def modules(folder: Path) -> tuple[Any, Any]:
    """torchrec's configuration of tables and its DLRM."""
    sys.modules.update({name: MagicMock() for name in ABSENT})
    for name in ("torchrec", "torchrec.sparse", "torchrec.modules"):
        package = ModuleType(name)
        package.__path__ = [str(folder / name.replace(".", "/"))]
        sys.modules[name] = package
    kinds = {kind: type(kind, (), {}) for kind in ("KeyedJaggedTensor", "KeyedTensor", "JaggedTensor")}
    sys.modules["torchrec.sparse.jagged_tensor"] = SimpleNamespace(**kinds)  # type: ignore[assignment]
    tables = importlib.import_module("torchrec.modules.embedding_configs")
    bags: Any = importlib.import_module("torchrec.modules.embedding_modules")
    sys.modules["torchrec"].EmbeddingBagCollection = bags.EmbeddingBagCollection  # type: ignore[attr-defined]
    spec = importlib.util.spec_from_file_location("dlrm", folder / "torchrec" / "models" / "dlrm.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return tables, found


def linears(*parts: nn.Module) -> list[nn.Linear]:
    """Linear layers of parts in their order."""
    return [layer for part in parts for layer in part.modules() if isinstance(layer, nn.Linear)]


def outputs(theirs: Any) -> tuple[Tensor, Tensor]:
    """Outputs of both with the same weights, of the same features and looked-up rows."""
    bottom, top = theirs.DenseArch(4, [16, 8]), theirs.OverArch(32, [10, 9, 1])
    cross = theirs.LowRankCrossNet(in_features=32, num_layers=3, low_rank=6)
    between = theirs.InteractionDCNArch(num_sparse_features=3, crossnet=cross)
    ours = Dense(SHAPE)
    for mine, layer in zip(linears(ours.bottom, ours.top, ours.last), linears(bottom, top), strict=True):
        mine.load_state_dict(layer.state_dict())
    for number, block in enumerate(ours.cross):
        assert isinstance(block, CrossLayer)
        block.up.weight.data.copy_(cross.W_kernels[number])
        block.down.weight.data.copy_(cross.V_kernels[number])
        block.up.bias.data.copy_(cross.bias[number].flatten())
    dense, rows = torch.randn(7, 4), [torch.randn(7, 8) for _ in range(3)]
    return ours(dense, rows), top(between(bottom(dense), torch.stack(rows, 1))).squeeze(1)


@torch.no_grad()
def main() -> int:
    """Print outputs and start weights of both."""
    tables, theirs = modules(Path(sys.argv[1]).resolve())
    torch.manual_seed(0)
    mine, other = outputs(theirs)
    print(f"outputs differ by {float((mine - other).abs().max()):.1e} of {float(other.abs().max()):.3f}")
    block, cross = CrossLayer(400, 50), theirs.LowRankCrossNet(in_features=400, num_layers=1, low_rank=50)
    for name, one, two in (("U", block.up, cross.W_kernels[0]), ("V", block.down, cross.V_kernels[0])):
        print(f"start deviation of {name}: {float(one.weight.std()):.4f}, torchrec {float(two.std()):.4f}")
    table = tables.EmbeddingBagConfig(num_embeddings=400, embedding_dim=16, name="t", feature_names=["a"])
    bounds = table.get_weight_init_min(), table.get_weight_init_max()
    print(f"start bounds of a table of 400 rows: {math.sqrt(1 / 400)}, torchrec {bounds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
