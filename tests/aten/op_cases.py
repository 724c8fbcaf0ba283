"""The ops that must run natively, by their OpInfo names, and what their tests may tolerate."""

from __future__ import annotations

import torch

# OpInfo name (with variant) -> the reason why strides may differ from PyTorch CPU's. Values and
# shapes must agree.
# Meta kernels decide the strides on this device; these CPU kernels do not follow theirs.
STRIDES_DIFFER = {
    "nn.functional.conv1d": "oneDNN chooses the layout of its result",
    "nn.functional.conv2d": "oneDNN chooses the layout of its result",
    "nn.functional.conv3d": "oneDNN chooses the layout of its result",
    "nn.functional.scaled_dot_product_attention": "CPU kernels lay heads out in ways of their own",
    "nonzero": "of a 0-dim tensor, of shape [n, 0], where strides mean nothing",
    "bmm": "CPU returns another layout than its meta kernel for transposed operands",
    "baddbmm": "CPU returns another layout than its meta kernel for transposed operands",
    "matmul": "composed of bmm",
    "nn.functional.linear": "composed of addmm and bmm",
}

# The 66 ATen overloads of the FLUX.2-klein pipeline are behind these.
KLEIN = [
    "add",
    "sub",
    "rsub",
    "mul",
    "div.no_rounding_mode",
    "div.trunc_rounding",
    "div.floor_rounding",
    "neg",
    "reciprocal",
    "rsqrt",
    "sqrt",
    "exp",
    "sin",
    "cos",
    "pow",
    "clamp",
    "eq",
    "lt",
    "le",
    "bitwise_and",
    "where",
    "mean",
    "sum",
    "min.reduction_no_dim",
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "matmul",
    "nn.functional.linear",
    "nn.functional.conv2d",
    "nn.functional.embedding",
    "index_select",
    "cat",
    "stack",
    "nn.functional.pad.constant",
    "repeat",
    "native_layer_norm",
    "nn.functional.layer_norm",
    "nn.functional.group_norm",
    "softmax",
    "_softmax_backward_data",
    "nn.functional.silu",
    "nn.functional.upsample_nearest",
    "nn.functional.scaled_dot_product_attention",
    "scatter",
    "gather",
    "arange",
    "zeros",
    "ones",
    "full",
    "new_ones",
    "new_zeros",
    "scalar_tensor",
    "clone",
    "contiguous",
    "view",
    "reshape",
    "permute",
    "transpose",
    "t",
    "select",
    "narrow",
    "split",
    "split_with_sizes",
    "unbind",
    "unsqueeze",
    "squeeze",
    "expand",
    "as_strided",
    "to",
    "masked_fill",
    "fill",
]

# What shares the lowerings of those.
MORE = [
    "abs",
    "floor",
    "ceil",
    "trunc",
    "round",
    "sign",
    "sgn",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "erf",
    "erfc",
    "lgamma",
    "digamma",
    "maximum",
    "minimum",
    "atan2",
    "fmod",
    "remainder",
    "floor_divide",
    "ne",
    "ge",
    "gt",
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
    "isnan",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_not",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "addcmul",
    "addcdiv",
    "lerp",
    "clamp_min",
    "clamp_max",
    "xlogy",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "all",
    "any",
    "prod",
    "var",
    "std",
    "max.reduction_no_dim",
    "max.reduction_with_dim",
    "min.reduction_with_dim",
    "log_softmax",
    "nn.functional.relu",
    "nn.functional.gelu",
    "nn.functional.leaky_relu",
    "nn.functional.softplus",
    "nn.functional.mish",
    "mv",
    "dot",
    "nn.functional.conv1d",
    "nn.functional.conv3d",
    "nn.functional.conv_transpose2d",
    "tril",
    "triu",
    "flip",
    "scatter_add",
    "sort",
    "argsort",
    "topk",
    "kthvalue",
    "cumsum",
    "cumprod",
    "index_put",
    "masked_select",
    "nonzero",
]

# What a sample uses beyond the op itself, and may run on the CPU.
ALLOWED_FALLBACKS = {"nn.functional.embedding": {"aten::embedding_renorm_"}}

# Results whose dtype is the meta kernel's (and CUDA's), not PyTorch CPU's.
DTYPES_DIFFER = {"native_layer_norm": "mean and rstd of bfloat16 are float32"}

# Factories take the device from an argument that their samples leave out.
FACTORIES = {"arange"}

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)

# rtol, atol. f32: a few ULP of each function plus another order of summation; bf16: one rounding of
# the result (2^-8) may fall the other way on each of the two sides.
TOLERANCE = {torch.float32: (2e-5, 2e-5), torch.bfloat16: (1.6e-2, 1e-2)}

SKIP = {
    "nn.functional.conv_transpose2d": (
        (torch.bfloat16,),
        "PyTorch CPU rounds sums twice: tests/kernels/test_conv.py compares with float64",
    ),
    # name -> (dtypes or None for all, reason)
    "nn.functional.scaled_dot_product_attention": (
        None,
        "samples draw dropout masks: tested by test_attention.py",
    ),
    **{
        name: (
            (torch.bfloat16, torch.int64, torch.bool),
            "samples have ties, whose order is nobody's promise: tested by test_order.py",
        )
        for name in ("sort", "argsort", "topk", "kthvalue")
    },
    "bitwise_left_shift": (
        (torch.int64,),
        "samples shift by more than 63 bits, which C++ leaves undefined",
    ),
    "bitwise_right_shift": (
        (torch.int64,),
        "samples shift by more than 63 bits, which C++ leaves undefined",
    ),
}
