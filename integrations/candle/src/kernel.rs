use std::borrow::Cow;

/// Which of Candle's operations a kernel belongs to, with the element type: `affine f32` for `affine_f32`, `matmul bf16` for whatever
/// cuBLAS calls its kernel for that. A name that is not known is left as it is.
///
/// Made for the table of kernels:
///
/// ```
/// use kernspan_candle::kernel_op;
///
/// # fn show(report: &kernspan::Report) {
/// println!("{}", report.kernels().group_by(kernel_op));
/// # }
/// assert_eq!(kernel_op("badd_f32"), "add f32");
/// assert_eq!(kernel_op("fast_sum_bf16"), "sum bf16");
/// assert_eq!(kernel_op("is_u32_f16"), "index_select f16");
/// assert_eq!(kernel_op("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(…)"), "matmul f32");
/// assert_eq!(kernel_op("my_kernel"), "my_kernel");
/// ```
pub fn kernel_op(kernel: &str) -> Cow<'_, str> {
    // Candle's own are plain C names; those of libraries are C++, with a list of parameters.
    let own = kernel.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let op = if own { candle(kernel).or_else(|| library(kernel)) } else { library(kernel) };
    op.map_or(Cow::Borrowed(kernel), |op| Cow::Owned(op.to_string()))
}

/// An operation and its element type, if that is known.
struct Op<'a> {
    name: &'a str,
    dtype: Option<&'a str>,
}

impl std::fmt::Display for Op<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)?;
        self.dtype.map_or(Ok(()), |dtype| write!(f, " {dtype}"))
    }
}

/// Longer ones first where one ends in another.
const DTYPES: [&str; 11] = ["bf16", "f16", "f32", "f64", "f8_e4m3", "f8e4m3", "i16", "i32", "i64", "u32", "u8"];

const UNARY: [&str; 23] = [
    "abs", "ceil", "copy", "cos", "elu", "erf", "exp", "floor", "gelu", "gelu_erf", "log", "neg", "normcdf", "powf",
    "recip", "relu", "round", "sigmoid", "sign", "silu", "sin", "sqr", "sqrt",
];

/// A kernel of candle-kernels, named `{op}_{dtype}`, or with the type of an index in between.
fn candle(kernel: &str) -> Option<Op<'_>> {
    if let Some((stem, dtype)) = quantized(kernel) {
        return Some(Op { name: stem, dtype: Some(dtype) });
    }
    let (stem, dtype) = split_dtype(kernel)?;
    // From and to.
    if let Some((before, _)) = split_dtype(stem)
        && before == "cast"
    {
        return Some(Op { name: "cast", dtype: kernel.strip_prefix("cast_") });
    }
    let by_index = split_dtype(stem).map_or(stem, |(stem, _)| stem);
    let name = match by_index {
        "is" => "index_select",
        "ia" => "index_add",
        "s" => "scatter",
        "sa" => "scatter_add",
        "gather" | "where" => by_index,
        "badd" | "bsub" | "bmul" | "bdiv" | "bmaximum" | "bminimum" => &stem[1..],
        "fast_sum" | "fast_sum_small" => "sum",
        "fast_max" | "fast_min" | "fast_argmax" | "fast_argmin" => &stem["fast_".len()..],
        "utanh" => "tanh",
        _ => match stem.strip_prefix('u') {
            Some(unary) if UNARY.contains(&unary) => unary,
            _ => stem,
        },
    };
    Some(Op { name, dtype: Some(dtype) })
}

fn split_dtype(name: &str) -> Option<(&str, &str)> {
    DTYPES.iter().find_map(|dtype| Some((name.strip_suffix(dtype)?.strip_suffix('_')?, *dtype)))
}

/// Kernels on quantized blocks, whose type is a word in the middle.
fn quantized(kernel: &str) -> Option<(&str, &str)> {
    let names = [
        ("dequantize_block_", "dequantize"),
        ("dequantize_mul_mat_vec_", "matmul"),
        ("mul_mat_vec_", "matmul"),
        ("mul_mat_", "matmul"),
        ("get_rows_", "get_rows"),
        ("quantize_", "quantize"),
    ];
    let (rest, name) = names.iter().find_map(|(prefix, name)| Some((kernel.strip_prefix(prefix)?, *name)))?;
    let start = rest.find('q')?;
    // As q4_0, q6_k, q8_1.
    let dtype = rest.get(start..start + 4)?;
    let is_block = dtype.as_bytes()[1].is_ascii_digit() && dtype.as_bytes()[2] == b'_';
    is_block.then_some((name, dtype))
}

/// A kernel of cuBLAS, cuDNN, cuRAND or flash attention.
fn library(kernel: &str) -> Option<Op<'_>> {
    let has = |parts: &[&str]| parts.iter().any(|part| kernel.contains(part));
    let name = if has(&["flash_fwd", "flash_bwd", "flash::"]) {
        "flash_attn"
    } else if has(&["convolve", "conv2d", "conv1d", "fprop", "dgrad", "wgrad", "cudnn"]) {
        "conv"
    } else if has(&["gemm", "gemv", "gemvx", "splitKreduce", "nvjet", "cutlass", "cublas", "gemmk1"]) {
        "matmul"
    } else if has(&["curand", "generate_seed_pseudo", "gen_sequenced"]) {
        "rand"
    } else {
        return None;
    };
    Some(Op { name, dtype: library_dtype(kernel) })
}

/// The type of the factors, by the words that NVIDIA's libraries have for it.
fn library_dtype(kernel: &str) -> Option<&'static str> {
    if let Some(rest) = kernel.split("nvjet_").nth(1) {
        return match rest.as_bytes().first()? {
            b'h' => Some("f16"),
            b't' => Some("bf16"),
            b's' => Some("f32"),
            b'd' => Some("f64"),
            b'q' => Some("f8"),
            _ => None,
        };
    }
    const WORDS: [(&str, &str); 17] = [
        ("e4m3", "f8"),
        ("bf16", "bf16"),
        ("bfloat16", "bf16"),
        ("f16f16", "f16"),
        ("fp16", "f16"),
        ("hgemm", "f16"),
        ("h884", "f16"),
        ("h1688", "f16"),
        ("h16816", "f16"),
        ("s16816gemm_f16", "f16"),
        ("__half", "f16"),
        ("f64f64", "f64"),
        ("dgemm", "f64"),
        ("double", "f64"),
        ("sgemm", "f32"),
        ("f32f32", "f32"),
        ("float", "f32"),
    ];
    WORDS.iter().find_map(|(word, dtype)| kernel.contains(word).then_some(*dtype))
}
