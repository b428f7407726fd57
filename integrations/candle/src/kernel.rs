use std::borrow::Cow;

/// Returns the Candle operation of a kernel with its element type: `affine f32` for `affine_f32`, `matmul bf16` for a
/// kernel of cuBLAS. An unknown name is returned unchanged.
///
/// It is meant for the report's table of kernels:
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
    // Candle's own kernels have plain C names. Those of libraries have C++ names with parameters, or contain known
    // words.
    let own = kernel.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let op = library(kernel).or_else(|| own.then(|| quantized(kernel).or_else(|| candle(kernel))).flatten());
    op.map_or(Cow::Borrowed(kernel), Cow::Owned)
}

/// Candle's element types. One that ends in another comes first.
const DTYPES: [&str; 12] =
    ["bf16", "f16", "f32", "f64", "fp8_e4m3", "f8_e4m3", "f8e4m3", "i16", "i32", "i64", "u32", "u8"];

const UNARY: [&str; 24] = [
    "abs", "ceil", "copy", "cos", "elu", "erf", "exp", "floor", "gelu", "gelu_erf", "log", "neg", "normcdf", "powf",
    "recip", "relu", "round", "sigmoid", "sign", "silu", "sin", "sqr", "sqrt", "tanh",
];

/// Returns the operation of a kernel of candle-kernels, which is named `{op}_{dtype}` or `{op}_{index dtype}_{dtype}`.
fn candle(kernel: &str) -> Option<String> {
    let (stem, dtype) = split_dtype(kernel)?;
    let (before, between) = split_dtype(stem).unwrap_or((stem, ""));
    let op = match before {
        "cast" => return Some(format!("cast {between} to {dtype}")),
        "is" => "index_select",
        "ia" => "index_add",
        "s" => "scatter",
        "sa" => "scatter_add",
        "badd" | "bsub" | "bmul" | "bdiv" | "bmaximum" | "bminimum" => &before[1..],
        "fast_sum" | "fast_sum_small" => "sum",
        "fast_max" | "fast_min" | "fast_argmax" | "fast_argmin" => &before["fast_".len()..],
        _ => match before.strip_prefix('u') {
            Some(unary) if UNARY.contains(&unary) => unary,
            _ => before,
        },
    };
    Some(format!("{op} {dtype}"))
}

fn split_dtype(name: &str) -> Option<(&str, &str)> {
    DTYPES.iter().find_map(|dtype| Some((name.strip_suffix(dtype)?.strip_suffix('_')?, *dtype)))
}

/// Returns the operation of a kernel on quantized blocks, whose type is a word such as `q4_0`, `q6_K` or `q6k`.
fn quantized(kernel: &str) -> Option<String> {
    const OPS: [(&str, &str); 6] = [
        ("dequantize_block_", "dequantize"),
        ("dequantize_mul_mat_vec_", "matmul"),
        ("mul_mat_", "matmul"),
        ("indexed_moe_forward_", "moe"),
        ("get_rows_", "get_rows"),
        ("quantize_", "quantize"),
    ];
    let (rest, op) = OPS.iter().find_map(|(prefix, op)| Some((kernel.strip_prefix(prefix)?, op)))?;
    let block = rest.strip_prefix("vec_").unwrap_or(rest).strip_prefix('q')?;
    let mut parts = block.split('_');
    let (bits, kind) = (parts.next()?, parts.next());
    let bits = bits.trim_end_matches('k');
    let kind = if block[bits.len()..].starts_with('k') { "k" } else { kind? };
    Some(format!("{op} q{bits}_{}", kind.to_ascii_lowercase()))
}

/// Returns the operation of a kernel of cuBLAS, cuDNN, cuRAND or flash attention.
fn library(kernel: &str) -> Option<String> {
    let has = |words: &[&str]| words.iter().any(|word| kernel.contains(word));
    let op = if has(&["flash_fwd", "flash_bwd", "flash::"]) {
        "flash_attn"
    } else if has(&["convolve", "fprop", "dgrad", "wgrad", "cudnn"]) {
        "conv"
    } else if has(&["gemm", "gemv", "splitKreduce", "nvjet", "cutlass", "cublas"]) {
        "matmul"
    } else if has(&["curand", "generate_seed_pseudo", "gen_sequenced"]) {
        "rand"
    } else {
        return None;
    };
    Some(library_dtype(kernel).map_or_else(|| op.to_owned(), |dtype| format!("{op} {dtype}")))
}

/// Returns the element type of the factors, by the words that NVIDIA's libraries use for it.
fn library_dtype(kernel: &str) -> Option<&'static str> {
    // `nvjet_tst_…` or `nvjet_sm90_tst_…`: the letters are the types of the factors, the sum and the result.
    if let Some(rest) = kernel.split("nvjet_").nth(1) {
        let types = rest.split('_').find(|word| !word.starts_with("sm"))?;
        return match types.as_bytes().first()? {
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

#[cfg(test)]
mod tests {
    use super::kernel_op;
    use std::collections::BTreeSet;

    /// The names of all kernels that Candle ships.
    const KERNELS: &str = include_str!("../tests/fixtures/kernels.txt");

    #[test]
    fn every_kernel_of_candle_has_its_operation() {
        let kernels: Vec<_> = KERNELS.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(kernels.len(), 755);
        let ops: BTreeSet<_> = kernels
            .iter()
            .map(|kernel| {
                let op = kernel_op(kernel);
                let (op, dtype) = op.split_once(' ').unwrap_or_else(|| panic!("{kernel} is {op}"));
                assert!(
                    kernel.to_lowercase().contains(dtype.split(' ').next().unwrap()) || op == "moe",
                    "{kernel} is {op} {dtype}"
                );
                op.to_owned()
            })
            .collect();
        let expected = "abs add affine argmax argmin asort_asc asort_desc avg_pool2d cast ceil col2im1d const_set \
            conv1d conv2d conv_transpose1d conv_transpose2d copy copy2d cos dequantize div elu eq erf \
            exp fill floor gather ge gelu gelu_erf get_rows gt im2col im2col1d index_add index_select \
            layernorm le log lt matmul max max_pool2d maximum min minimum moe mul ne neg normcdf powf \
            quantize recip relu rmsnorm rope rope_i rope_thd round scatter scatter_add sigmoid sign silu \
            sin softmax sqr sqrt sub sum tanh upsample_bilinear2d upsample_nearest2d where";
        assert_eq!(ops.iter().map(String::as_str).collect::<Vec<_>>(), expected.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn types_are_said_as_candle_does() {
        let kernels = [
            ("cast_f32_bf16", "cast f32 to bf16"),
            ("cast_f8_e4m3_f16", "cast f8_e4m3 to f16"),
            ("where_u8_f32", "where f32"),
            ("fast_sum_small_f16", "sum f16"),
            ("mul_mat_vec_q4_K_q8_1_cuda3", "matmul q4_k"),
            ("dequantize_mul_mat_vec_q4_0_cuda", "matmul q4_0"),
            ("indexed_moe_forward_q2k_q8_1", "moe q2_k"),
            ("quantize_q8_1", "quantize q8_1"),
        ];
        kernels.iter().for_each(|(kernel, op)| assert_eq!(kernel_op(kernel), *op));
    }

    #[test]
    fn kernels_of_libraries_are_told_by_their_words() {
        let kernels = [
            ("ampere_sgemm_32x128_tn", "matmul f32"),
            ("nvjet_tst_128x64_64x8_2x1_v_bz_NNT", "matmul bf16"),
            ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", "matmul bf16"),
            ("nvjet_hsh_64x8_64x16_1x2_h_bz_TNN", "matmul f16"),
            ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4>(…)", "matmul f32"),
            ("void cublasLt::splitKreduce_kernel<32, 16, int, float, float>(…)", "matmul f32"),
            ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_stage3", "matmul bf16"),
            ("void flash_fwd_kernel<…>(Flash_fwd_params)", "flash_attn"),
            ("void gen_sequenced<curandStateXORWOW, float2, normal_args_st>(…)", "rand f32"),
            ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
            ("Memset (Device)", "Memset (Device)"),
            ("void my_kernel<float>(float*)", "void my_kernel<float>(float*)"),
        ];
        kernels.iter().for_each(|(kernel, op)| assert_eq!(kernel_op(kernel), *op));
    }
}
