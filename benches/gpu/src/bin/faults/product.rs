//! Matrix products of cuBLAS.

use crate::{Failure, device::Device, training::Arithmetic};
use cudarc::{
    cublas::{
        CudaBlas, Gemm, GemmConfig,
        result::CublasError,
        sys::{cublasMath_t, cublasOperation_t::CUBLAS_OP_N, cublasSetMathMode},
    },
    driver::CudaSlice,
};
use tracing::info_span;

/// A product of two square matrices of `f32`.
#[derive(Debug)]
pub(crate) struct Product {
    blas: CudaBlas,
    arithmetic: Arithmetic,
    left: CudaSlice<f32>,
    right: CudaSlice<f32>,
    result: CudaSlice<f32>,
}

impl Product {
    const SIZE: usize = 2048;
    const FLOPS: u64 = 2 * (Self::SIZE as u64).pow(3);

    /// Makes two matrices. Their numbers are not all the same, since the GPU needs less power for those, and is faster.
    #[allow(unsafe_code, reason = "cuBLAS is a C library")]
    pub(crate) fn new(arithmetic: Arithmetic, device: &Device) -> Result<Self, Failure> {
        let stream = &device.stream;
        let blas = CudaBlas::new(stream.clone())?;
        if arithmetic == Arithmetic::Tf32 {
            // SAFETY: the handle is alive.
            unsafe { cublasSetMathMode(*blas.handle(), cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH) }.result()?;
        }
        let mut number = 1_u32;
        let mut next = || {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (number >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let mut matrix = || stream.clone_htod(&(0..Self::SIZE.pow(2)).map(|_| next()).collect::<Vec<_>>());
        let (left, right) = (matrix()?, matrix()?);
        let result = stream.alloc_zeros(Self::SIZE.pow(2))?;
        // The matrices were copied from memory that is freed here.
        stream.synchronize()?;
        Ok(Self { blas, arithmetic, left, right, result })
    }

    /// Computes the product, in a span that says how much there is to compute.
    #[allow(unsafe_code, reason = "cuBLAS is a C library")]
    pub(crate) fn multiply(&mut self) -> Result<(), CublasError> {
        let span = match self.arithmetic {
            Arithmetic::F32 => info_span!(
                "matmul",
                op.flops = Self::FLOPS,
                op.dtype.lhs = "f32",
                op.dtype.rhs = "f32",
                op.gemm = "2048x2048x2048"
            ),
            Arithmetic::Tf32 => info_span!(
                "matmul",
                op.flops = Self::FLOPS,
                op.dtype.lhs = "f32",
                op.dtype.rhs = "f32",
                op.gemm = "2048x2048x2048",
                op.compute = "tf32"
            ),
        };
        let _span = span.entered();
        let size = Self::SIZE as i32;
        let config = GemmConfig {
            transa: CUBLAS_OP_N,
            transb: CUBLAS_OP_N,
            m: size,
            n: size,
            k: size,
            alpha: 1.0,
            lda: size,
            ldb: size,
            beta: 0.0,
            ldc: size,
        };
        // SAFETY: the configuration has the sizes of the matrices.
        unsafe { self.blas.gemm(config, &self.left, &self.right, &mut self.result) }
    }
}
