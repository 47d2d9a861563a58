"""What the full scale does and no campaign of a mini benchmark: each reference trains through it here, prepared from a
small data set in the distributed layout. Only sizes and rates are changed of the full configuration."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.references import configs, distributed
from tests.references.one_rank import OneRank
from tests.references.tasks import mark
from train_bench.references.bert.model import Bert, tensor_name
from train_bench.references.dlrm import criteo as criteo_days
from train_bench.references.llama2_70b_lora.model import Decoder as PlainLlama
from train_bench.references.llama31_8b.model import Decoder
from train_bench.references.maskrcnn.model import Backbone as MaskRCNNBackbone
from train_bench.references.maskrcnn.start_weights import detectron_names
from train_bench.references.parts import coco as coco_files
from train_bench.references.parts.decoder.weights import save_weights
from train_bench.references.ssd.model import Backbone as SSDBackbone

COMMON = ("warm_up_steps=0", "data.workers=0")


def trained(config: Any, source: Path, steps: int) -> tuple[Any, list[float]]:
    """The task after `steps` steps on the prepared data, and the loss of each."""
    data = importlib.import_module(f"train_bench.references.{config.reference}.data")
    data.prepare(config, Path(config.data_dir), source)
    task = importlib.import_module(f"train_bench.references.{config.reference}.task").Task(config)
    task.build(1, OneRank())
    found = task.open_data()
    assert (found.train_samples, found.eval_samples) == (config.train_samples, config.eval_samples)
    losses = []
    for step in range(1, steps + 1):
        task.train_until(mark(step * config.hyperparameters.global_batch_size))
        losses.append(float(task.last_loss))
    return task, losses


def fallen(losses: list[float]) -> float:
    """The mean of the last fifth as a share of that of the first fifth."""
    part = len(losses) // 5
    return float(np.mean(losses[-part:]) / np.mean(losses[:part]))


@pytest.mark.full
def test_resnet_trains_with_lars_on_jpeg_files_with_object_boxes(tmp_path: Path) -> None:
    """Also PNG and CMYK files among them, the 7x7 stem with pooling, and flips."""
    distributed.imagenet(tmp_path / "source", train=240, val=60)
    config = configs.resnet(
        "resnet",
        *COMMON,
        *(
            "train_samples=240",
            "eval_samples=60",
            "data.shard_samples=100",
            f"data_dir={tmp_path / 'packed'}",
        ),
        *("model.stem_width=16", "model.widths=[16,24,32]", "model.blocks=[1,1,1]", "model.strides=[1,2,2]"),
        *("model.num_classes=2", "data.image_size=32", "data.eval_resize=36"),
        *("hyperparameters.global_batch_size=40", "hyperparameters.lars_opt_base_learning_rate=2.0"),
        *("hyperparameters.lars_opt_learning_rate_warmup_epochs=1", "hyperparameters.model_bn_span=null"),
        "hyperparameters.lars_opt_learning_rate_decay_steps=100",
    )
    task, losses = trained(config, tmp_path / "source", 60)
    assert all(math.isfinite(value) for value in task.evaluate().metrics.values())
    task.close()
    assert fallen(losses) < 0.8


@pytest.fixture
def coco(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The three archives of a small COCO; their MD5 stand in for the published ones."""
    monkeypatch.setattr(coco_files, "ARCHIVES", distributed.coco(tmp_path / "source", train=60, val=12))
    return tmp_path / "source"


@pytest.mark.full
def test_maskrcnn_trains_on_polygons_with_frozen_norms_and_start_weights(coco: Path, tmp_path: Path) -> None:
    """Also JPEG, resizing to the shorter side, batches of one orientation, the frozen stem and first stage, crowds and
    boxes of less than a pixel."""
    folder = tmp_path / "prepared"
    config = configs.maskrcnn(
        "maskrcnn",
        *COMMON,
        *("train_samples=60", "eval_samples=12", f"data_dir={folder}", "model.num_classes=4"),
        *("model.stem_width=16", "model.widths=[16,24,32,32]", "model.blocks=[1,2,1,1]", "model.expansion=2"),
        *("model.fpn_channels=16", "model.box_features=64", "model.mask_channels=16"),
        *("model.anchor_sizes=[16,24,32,48,64]", "model.canonical_size=56.0"),
        *("detection.train_candidates=60", "detection.eval_candidates=60", "detection.eval_proposals=20"),
        *("detection.anchors_sampled=64", "detection.rois_sampled=32"),
        *("hyperparameters.min_image_size=80", "hyperparameters.max_image_size=107"),
        *("hyperparameters.global_batch_size=4", "hyperparameters.opt_base_learning_rate=0.02"),
        *(
            "hyperparameters.opt_learning_rate_warmup_steps=5",
            "hyperparameters.opt_learning_rate_warmup_factor=0.003",
        ),
    )
    torch.manual_seed(3)
    backbone = MaskRCNNBackbone(config.model)
    state = backbone.state_dict()
    start = {theirs: state[ours].clone() for ours, theirs in detectron_names(backbone).items()}
    start["res_conv1_bn_s"] *= 0.02  # as weights that were trained on pixels from 0 to 255
    for name in start:
        if name.endswith("branch2c_bn_s"):
            start[name] *= 0.3
    folder.mkdir()
    torch.save(start, folder / "R-50.pt")
    task, _ = trained(config, coco, 0)
    seen: list[dict[str, float]] = []
    task.model.register_forward_hook(
        lambda _module, _inputs, out: seen.append({name: float(loss.detach()) for name, loss in out.items()})
    )
    task.train_until(mark(4 * 60))
    batch = next(task._batches)
    assert all(isinstance(objects.masks, list) for objects in batch.objects)
    state = task.model.network.backbone.state_dict()
    moved = {
        theirs
        for ours, theirs in detectron_names(backbone).items()
        if not torch.equal(state[ours], start[theirs])
    }
    assert moved == {name for name in start if name.endswith("_w") and not name.startswith(("conv1", "res2"))}
    assert fallen([sum(step.values()) for step in seen]) < 0.8
    assert fallen([step["mask"] for step in seen]) < 0.9
    task.close()


@pytest.mark.full
def test_ssd_trains_on_jpeg_files_of_coco_from_start_weights(coco: Path, tmp_path: Path) -> None:
    """Also crowds, flips and the stem with pooling."""
    config = configs.ssd(
        "ssd",
        *COMMON,
        *("train_samples=60", "eval_samples=12", f"data_dir={tmp_path / 'prepared'}"),
        *("model.image_size=64", "model.stem_width=16", "model.stem_kernel=7", "model.widths=[16,32,64]"),
        *("model.blocks=[1,1,1]", "model.strides=[1,2,1]", "model.extra=[[32,48,2,1],[32,48,2,1]]"),
        *("model.num_classes=3", "model.feature_sizes=[8,4,2]", "model.feature_steps=[8,16,32]"),
        *("model.scales=[14,24,36,50]", "model.aspect_ratios=[[2],[2],[2]]"),
        f"model.start_weights={tmp_path / 'start.pth'}",
        *("hyperparameters.global_batch_size=8", "hyperparameters.opt_base_learning_rate=0.02"),
        *("hyperparameters.opt_learning_rate_warmup_steps=5", "hyperparameters.model_bn_span=null"),
    )
    torch.manual_seed(3)
    torch.save(SSDBackbone(config.model).state_dict(), tmp_path / "start.pth")
    task, losses = trained(config, coco, 40)
    assert all(math.isfinite(value) for value in task.evaluate().metrics.values())
    task.close()
    assert fallen(losses) < 0.8


def test_unet3d_trains_on_resampled_nifti_volumes(tmp_path: Path) -> None:
    """Also intensities that are clipped and normalised by the constants of CT."""
    distributed.kits19(tmp_path / "source", 8)
    config = configs.unet3d(
        "unet3d",
        *COMMON,
        *("train_samples=6", "eval_samples=2", "data.evaluation_cases=[1,4]", "data.md5=null"),
        *(f"data_dir={tmp_path / 'prepared'}", "model.channels=[8,16]"),
        *(
            "hyperparameters.training_input_shape=[20,20,20]",
            "hyperparameters.validation_input_shape=[20,20,20]",
        ),
        *("hyperparameters.global_batch_size=2", "hyperparameters.opt_base_learning_rate=0.2"),
        "hyperparameters.opt_learning_rate_warmup_epochs=1",
    )
    task, losses = trained(config, tmp_path / "source", 40)
    assert all(math.isfinite(value) for value in task.evaluate().metrics.values())
    task.close()
    assert fallen(losses) < 0.8


@pytest.mark.full
def test_bert_trains_on_tfrecords_from_start_weights_with_dropout_and_a_warm_up(
    language_folder: Path, tmp_path: Path
) -> None:
    """Also accumulated micro-batches."""
    (tmp_path / "source").mkdir()
    train, val = importlib.import_module("train_bench.references.bert.data").open_examples(
        configs.bert("bert_mini", f"data_dir={language_folder}")
    )
    distributed.tfrecords(
        tmp_path / "source" / "part-00000-of-00001", [as_features(train[n]) for n in range(512)]
    )
    distributed.tfrecords(tmp_path / "source" / "eval_10k", [as_features(val[n]) for n in range(50)])
    config = configs.bert(
        "bert",
        *COMMON,
        *(
            "train_samples=512",
            "eval_samples=50",
            f"data_dir={tmp_path / 'packed'}",
            "data.eval_file_bytes=null",
        ),
        *("data.sequence_length=32", "data.predictions=5", f"start_weights={tmp_path / 'start.npz'}"),
        *("model.layers=2", "model.width=64", "model.heads=4", "model.intermediate=128"),
        *("model.vocabulary=94", "model.positions=32"),
        *("hyperparameters.global_batch_size=16", "hyperparameters.gradient_accumulation_steps=2"),
        *(
            "hyperparameters.opt_base_learning_rate=0.01",
            "hyperparameters.opt_learning_rate_training_steps=200",
        ),
        *("hyperparameters.num_warmup_steps=10", "hyperparameters.opt_learning_rate_warmup_steps=10"),
        "hyperparameters.start_warmup_step=-3",
    )
    assert config.model.dropout == 0.1
    torch.manual_seed(3)
    arrays = {}
    for name, weight in Bert(config.model).named_parameters():
        array = weight.detach().numpy()
        arrays[tensor_name(name)] = array.T if tensor_name(name).endswith("/kernel") else array
    np.savez(tmp_path / "start.npz", **arrays)
    task, losses = trained(config, tmp_path / "source", 100)
    assert all(math.isfinite(value) for value in task.evaluate().metrics.values())
    task.close()
    assert fallen(losses) < 0.9


def as_features(row: np.void) -> dict[str, np.ndarray]:
    """A packed example as the features of the reference's TFRecords."""
    places, masked = np.arange(len(row["tokens"])), np.arange(len(row["words"]))
    return {
        "input_ids": row["tokens"].astype(np.int64),
        "input_mask": (places < row["length"]).astype(np.int64),
        "segment_ids": ((places >= row["first"]) & (places < row["length"])).astype(np.int64),
        "masked_lm_positions": row["positions"].astype(np.int64),
        "masked_lm_ids": row["words"].astype(np.int64),
        "masked_lm_weights": (masked < row["masked"]).astype(np.float32),
        "next_sentence_labels": np.array([int(row["random_next"])]),
    }


def test_llama31_8b_trains_on_json_lines_from_start_weights_with_slowed_rotations(tmp_path: Path) -> None:
    """Also a tokenizer, accumulated micro-batches and sequences that go on from file to file."""
    vocabulary = distributed.c4(tmp_path / "source", documents=200)
    config = configs.llama31_8b(
        "llama31_8b",
        *COMMON,
        *("eval_samples=20", f"data_dir={tmp_path / 'tokens'}", f"model.vocabulary={vocabulary}"),
        *(f"start_weights={tmp_path}", "pretrained=true", "data.train_size=null", "data.eval_size=null"),
        *("model.layers=2", "model.width=32", "model.heads=4", "model.key_value_heads=2"),
        *("model.head_size=8", "model.intermediate=64", "model.rope_base=100.0", "model.old_context=16"),
        *("hyperparameters.max_sequence_length=32", "hyperparameters.global_batch_size=8"),
        *("hyperparameters.gradient_accumulation_steps=2", "hyperparameters.opt_base_learning_rate=0.01"),
        "hyperparameters.opt_learning_rate_warmup_steps=5",
    )
    torch.manual_seed(3)
    save_weights(Decoder(config.model), tmp_path / "model.safetensors")
    data = importlib.import_module("train_bench.references.llama31_8b.data")
    data.prepare(config, tmp_path / "tokens", tmp_path / "source")
    config.train_samples = len(data.open_sequences(config)[0])
    task, losses = trained(config, tmp_path / "source", 60)
    assert all(math.isfinite(value) for value in task.evaluate().metrics.values())
    task.close()
    assert fallen(losses) < 0.8


def test_llama2_70b_lora_trains_on_packed_sequences_from_start_weights_with_dropout(tmp_path: Path) -> None:
    """Also accumulated micro-batches, and labels of which some do not count. Beside random weights, adapters learn
    little."""
    vocabulary = distributed.packed(tmp_path / "source", train=64, validation=8, length=32)
    config = configs.llama2_70b_lora(
        "llama2_70b_lora",
        *COMMON,
        *("train_samples=64", "eval_samples=8", "data.sequence_length=32", f"model.vocabulary={vocabulary}"),
        *(f"data_dir={tmp_path / 'packed'}", f"start_weights={tmp_path / 'start'}"),
        *("model.layers=2", "model.width=32", "model.heads=4", "model.key_value_heads=2"),
        *("model.head_size=8", "model.intermediate=64", "model.rope_base=100.0"),
        *("hyperparameters.global_batch_size=8", "hyperparameters.gradient_accumulation_steps=2"),
        "hyperparameters.opt_base_learning_rate=0.005",
    )
    (tmp_path / "start").mkdir()
    torch.manual_seed(3)
    network = PlainLlama(config.model)
    with torch.no_grad():
        network.embed_tokens.weight.mul_(5)
        network.lm_head.weight.mul_(5)
    save_weights(network, tmp_path / "start" / "model.safetensors")
    task, losses = trained(config, tmp_path / "source", 60)
    assert all(math.isfinite(value) for value in task.evaluate().metrics.values())
    task.close()
    assert fallen(losses) < 0.97


@pytest.mark.full
def test_gpt_oss_20b_trains_on_json_lines_over_several_windows(tmp_path: Path) -> None:
    """Also accumulated micro-batches, and windows that do not divide the length."""
    vocabulary = distributed.c4(tmp_path / "source", documents=200)
    config = configs.gpt_oss_20b(
        "gpt_oss_20b",
        *COMMON,
        *("eval_samples=20", f"data_dir={tmp_path / 'tokens'}", f"model.vocabulary={vocabulary}"),
        *("model.layers=3", "model.width=32", "model.heads=4"),
        *("model.key_value_heads=2", "model.head_size=8", "model.intermediate=16", "model.experts=6"),
        *("model.window=12", "model.rope_base=100.0", "model.deviation=0.02"),
        *("data.train_size=null", "data.eval_size=null"),
        *("hyperparameters.max_sequence_length=32", "hyperparameters.global_batch_size=8"),
        *("hyperparameters.gradient_accumulation_steps=2", "hyperparameters.opt_base_learning_rate=0.01"),
        "hyperparameters.opt_learning_rate_warmup_steps=5",
    )
    data = importlib.import_module("train_bench.references.gpt_oss_20b.data")
    data.prepare(config, tmp_path / "tokens", tmp_path / "source")
    config.train_samples = len(data.open_sequences(config)[0])
    task, losses = trained(config, tmp_path / "source", 60)
    assert all(math.isfinite(value) for value in task.evaluate().metrics.values())
    task.close()
    assert fallen(losses) < 0.8


@pytest.mark.full
def test_rnnt_trains_on_flac_files_with_subwords_stacked_layers_and_dropout(tmp_path: Path) -> None:
    """Also 16 kHz, accumulated micro-batches and start weights that are scaled."""
    distributed.librispeech(tmp_path / "source", "train-a", range(96))
    distributed.librispeech(tmp_path / "source", "dev", range(1000, 1008))
    config = configs.rnnt(
        "rnnt",
        *COMMON,
        *("train_samples=96", "eval_samples=8", "data.train_subsets=[train-a]", "data.eval_subsets=[dev]"),
        *("data.md5=[]", f"data_dir={tmp_path / 'packed'}", "model.labels=24", "data.eval_batch_size=8"),
        *("model.encoder=32", "model.prediction=16", "model.joint=32"),
        *("hyperparameters.global_batch_size=16", "hyperparameters.gradient_accumulation_steps=2"),
        *("hyperparameters.opt_base_learning_rate=0.02", "hyperparameters.opt_learning_rate_warmup_epochs=1"),
        "hyperparameters.model_eval_ema_factor=0.9",
    )
    task, losses = trained(config, tmp_path / "source", 30)
    assert all(math.isfinite(value) for value in task.evaluate().metrics.values())
    task.close()
    assert fallen(losses) < 0.8


def test_dlrm_trains_on_days_of_lines_with_26_categories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also numbering and shuffling in buckets, and the deep top network."""
    rows, lines = [20] * 10 + [8] * 16, 100
    distributed.criteo(tmp_path / "source", criteo_days.DAYS, lines, rows)
    monkeypatch.setattr(criteo_days, "BUCKET", 500)
    config = configs.dlrm(
        "dlrm",
        f"data_dir={tmp_path / 'records'}",
        *(f"train_samples={lines * 23}", f"eval_samples={lines // 2}", f"model.table_rows={rows}"),
        *("model.bottom=[32,16]", "model.top=[64,64,32,32,1]", "data.max_index=100", "warm_up_steps=0"),
        *("hyperparameters.global_batch_size=64", "hyperparameters.opt_base_learning_rate=0.1"),
    )
    task, losses = trained(config, tmp_path / "source", 60)
    assert all(math.isfinite(value) for value in task.evaluate().metrics.values())
    task.close()
    assert fallen(losses) < 0.95
