//! Kernels that multiply matrices, and whether they use tensor cores, by their names.

/// A kernel that multiplies matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatrixKernel {
    /// It uses tensor cores.
    TensorCores,
    /// It multiplies `f32` without them.
    PlainF32,
}

impl MatrixKernel {
    /// Parts of names of cuBLAS, cuDNN, CUTLASS and Flash Attention that use tensor cores.
    const TENSOR_CORES: [&str; 14] = [
        "tensorop",
        "s1688",
        "s884",
        "h884",
        "16816",
        "hmma",
        "imma",
        "qmma",
        "wgmma",
        "gmma",
        "tf32",
        "bf16gemm",
        "h1688",
        "flash_fwd",
    ];
    /// Parts of names of products of `f32` without tensor cores.
    const PLAIN_F32: [&str; 6] = ["sgemm", "f32f32_f32f32", "gemmsn", "gemm_sn", "scudnn", "simt_s"];
    /// Parts of names of convolutions.
    const CONVOLUTIONS: [&str; 5] = ["fprop", "dgrad", "wgrad", "conv", "scudnn"];

    /// Whether a kernel of this name computes a convolution.
    pub(super) fn is_convolution(kernel: &str) -> bool {
        let name = kernel.to_ascii_lowercase();
        Self::CONVOLUTIONS.iter().any(|part| name.contains(part))
    }

    /// Returns what a kernel of this name does, if the name says that it multiplies matrices.
    pub(super) fn of(kernel: &str) -> Option<Self> {
        let name = kernel.to_ascii_lowercase();
        let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        match () {
            () if has(&Self::TENSOR_CORES) => Some(Self::TensorCores),
            () if has(&Self::PLAIN_F32) => Some(Self::PlainF32),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MatrixKernel;

    #[test]
    fn names_of_kernels_say_it() {
        let plain = Some(MatrixKernel::PlainF32);
        let tensor = Some(MatrixKernel::TensorCores);
        for (name, expected) in [
            ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma", plain),
            ("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>", plain),
            ("ampere_sgemm_128x64_nn", plain),
            ("sm80_xmma_fprop_implicit_gemm_indexed_f32f32_f32f32_f32_nhwckrsc_nchw_tilesize128x32x8_ffma", plain),
            ("_5x_cudnn_ampere_scudnn_128x64_relu_small_nn_v1", plain),
            ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8", tensor),
            ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>", tensor),
            ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_wgmma", tensor),
            ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>", tensor),
            ("void at::native::vectorized_elementwise_kernel<4, float>", None),
            ("layer_forward", None),
        ] {
            assert_eq!(MatrixKernel::of(name), expected, "{name}");
        }
    }
}
