"""Operator classes of Fathom (Adolf et al., 2016), with additions for recent networks."""

from __future__ import annotations

import re

CLASSES: dict[str, str] = {
    "matrix": r"mm|addmm|bmm|baddbmm|addbmm|addmv|mv|dot|vdot|linear|matmul|einsum|_scaled_mm|mkldnn_linear\w*"
    r"|_?grouped_mm|.*scaled_dot_product.*|_(efficient|flash|cudnn)_attention.*|multi_head_attention.*|tensordot|inner|ger"
    r"|outer|_addmm_activation|_trilinear|bilinear|_sparse_mm|_sparse_addmm",
    "convolution": r".*convolution.*|conv\d?d?|conv[123]d|conv_transpose\dd|_?slow_conv.*|thnn_conv.*|.*im2col|.*col2im"
    r"|_nnpack.*|_conv_depthwise.*",
    "normalisation": r".*batch_norm.*|.*layer_norm.*|.*group_norm.*|.*instance_norm.*|.*rms_norm.*|renorm",
    "recurrent": r".*rnn.*|.*lstm.*|.*gru.*",
    "embedding and index": r".*embedding.*|gather|gather_backward|scatter.*|index.*|_index.*|_unsafe_index.*|take.*"
    r"|masked_\w+|nonzero\w*|where_index|searchsorted|bucketize|one_hot|put_?|_unique2?|unique.*|isin",
    "pooling and resizing": r".*pool.*|upsample.*|_upsample.*|interpolate|.*grid_sampl\w+|pixel_shuffle|.*roi_\w+|nms",
    "reduction": r"sum|mean|max|min|amax|amin|argmax|argmin|topk|sort|argsort|cumsum|cumprod|cummax\w*|_cummax\w*|"
    r"_?softmax\w*|_?log_softmax\w*|logsumexp|norm|linalg_\w*norm|_?foreach_norm|var|std|var_mean|prod|any|all|"
    r"bincount|histc|count_nonzero|median|kthvalue|value_selecting_reduction_backward|_?logcumsumexp\w*|aminmax|trace"
    r"|nll_loss\w*|cross_entropy\w*|.*_loss|.*_cross_entropy\w*|.*_loss_backward|.*_loss_forward|_ctc\w*|equal|std_mean|sum_to_size",
    "random": r"bernoulli_?|normal_?|uniform_?|random_?|rand|randn|randint|randperm|multinomial|exponential_"
    r"|_?(native_|fused_)?dropout\w*|rand_like|randn_like|randint_like|geometric_|cauchy_|log_normal_",
    "optimizer": r"_foreach_\w+|_fused_\w+|_amp_\w+",
    "data movement": r"copy_|_to_copy|to|cat|_cat|stack|clone|contiguous|pin_memory|_pin_memory|copy|pad|_pad\w*|.*_pad"
    r"|.*_pad\d?d?|.*_pad_backward|constant_pad_nd|roll|flip|fliplr|flipud|repeat|repeat_interleave|tile|hstack|vstack"
    r"|concat|concatenate|fill_|zero_|fill|zeros|ones|full|zeros_like|ones_like|full_like|arange|linspace|scalar_tensor"
    r"|new_zeros|new_ones|new_full|eye|tril|triu|tril_indices|triu_indices|diag|diag_embed|select_backward"
    r"|slice_backward|unfold_backward|slice_scatter|select_scatter|as_strided_scatter|_copy_from\w*|tensor"
    r"|meshgrid|_nested_\w+|mkldnn_reorder\w*|to_mkldnn|to_dense|_to_dense|_to_cpu|type_as|float|double|half|int|long"
    r"|bfloat16|set_|_reshape_copy|split_copy\w*|split_with_sizes_copy|cpu|cuda|_sparse_coo_tensor\w*|_coalesce\w*"
    r"|sparse_mask|add_dense\w*|_convert_indices\w*|coalesce|frombuffer|from_numpy|range|swapaxes_copy|view_copy"
    r"|expand_copy|lift_fresh_copy|_make_dual_copy|_?chunk_cat\w*|block_diag|full_out|cartesian_prod|combinations",
    "synchronisation": r"item|_local_scalar_dense|is_nonzero|tolist",
    "views, allocation": r"view"
    r"|_unsafe_view|reshape|_reshape_alias|_reshape_\w+|expand|expand_as|permute|transpose_?|t_?|numpy_T"
    r"|squeeze_?|unsqueeze_?|select|slice|narrow|split|split_with_sizes|unsafe_split\w*|chunk|unsafe_chunk|tensor_split"
    r"|unbind|as_strided_?|alias|detach_?|flatten|unflatten|movedim|moveaxis|swapaxes|diagonal|unfold|view_as|real|imag"
    r"|empty\w*|new_empty\w*|resize_|resize_as_|lift_fresh|lift|requires_grad_|result_type|_has_\w+|is_\w+|cudnn_is_acceptable|_values"
    r"|_indices|values|indices|_nnz|sparse_dim|dense_dim|_dim\w+|size|stride|numel|sym_\w+|broadcast_tensors|broadcast_to"
    r"|can_cast|_cast_\w+|set_data|data|_version|retain_grad|_fw_primal|resolve_conj|resolve_neg|_conj|conj|output_nr"
    r"|atleast_\dd|ravel|mT|mH|T|H|view_as_real|view_as_complex|_autocast\w*|_is_\w+|_coalesced_|is_same_size|promote_types"
    r"|_debug_has_internal_overlap|__getitem__|_record_function\w*|record_\w*stream|_assert_async|profiler|_parse_to|_lazy_clone",
    "communication": r"(c10d|gloo|nccl|mpi|ucc|symm_mem)\b.*|.*all_?reduce.*|.*all_?gather.*|.*reduce_scatter.*"
    r"|.*all_?to_?all.*|broadcast_|send|recv\w*|barrier",
    "element-wise": r"add|sub|rsub|mul|div|true_divide|floor_divide|remainder|fmod|pow|sqrt|rsqrt|exp|exp2|expm1|log"
    r"|log1p|log2|log10|neg|abs|sign|sgn|sin|cos|tan|asin|acos|atan|atan2|arctan2|tanh|sinh|cosh|sigmoid|hardsigmoid"
    r"|log_sigmoid\w*|logsigmoid|relu|relu6|_?prelu\w*|leaky_relu|elu|selu|celu|gelu|silu|mish|hardswish|hardtanh|softplus"
    r"|glu|clamp|clamp_min|clamp_max|clip|threshold|where|_s_where|eq|ne|lt|le|gt|ge|less|greater|logical_\w+"
    r"|bitwise_\w+|__and__|__or__|__xor__|__lshift__|__rshift__|isnan|isinf|isfinite|nan_to_num|maximum|minimum|fmax"
    r"|fmin|reciprocal|square|round|floor|ceil|trunc|frac|addcmul|addcdiv|lerp|erf|erfc|erfinv|logaddexp|logaddexp2"
    r"|\w+_backward|\w+_backward_data|\w+_backward_reduce|polar|complex|hypot|special_\w+|heaviside|digamma|lgamma"
    r"|huber\w*|smooth_l1\w*|mse\w*|cumulative\w*|cross|cdist\w*|_cdist\w*|deg2rad|rad2deg|signbit|copysign|xlogy"
    r"|diff|sparse_\w+|_fft\w*|fft_\w+|stft|istft|hann_window|_weight_norm\w*|cov|gcd|lcm",
}
"""Operator names without namespace and overload; the first matching class counts, with or without the underscore of an
in-place operator."""

COMPUTING = ("forward", "backward", "optimizer")
"""Phases that consist of operators."""

FRAMEWORK = "framework"
"""Recorded events that are no operators: autograd nodes, annotations."""

OWN = "own code"
"""A benchmark's own functions that autograd knows by their classes."""

UNKNOWN = "unknown"

_NODE = re.compile(r"\w+Backward\d+")

_PATTERNS = {kind: re.compile(pattern) for kind, pattern in CLASSES.items()}
_KNOWN: dict[str, str] = {}


def class_of(name: str) -> str:
    """Class of an operator by its profiler or dispatcher name."""
    known = _KNOWN.get(name)
    if known is None:
        known = _KNOWN[name] = _class_of(name)
    return known


def _class_of(name: str) -> str:
    if _PATTERNS["communication"].match(name):
        return "communication"
    space, _, operator = name.rpartition("::")
    if "autograd" in space or re.search(r"[ #:.]", operator) or _NODE.fullmatch(operator):
        return FRAMEWORK
    if "distributed" in space:
        return "data movement"
    if not space and operator.lower() != operator:
        return OWN
    for spelled in (operator, operator.removesuffix("_")):
        for kind, pattern in _PATTERNS.items():
            if pattern.fullmatch(spelled):
                return kind
    return UNKNOWN
