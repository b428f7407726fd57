//! Records many windows close together in a loop of kernels, cuBLAS, copies, fills and allocations: `soak [wait=15]
//! [windows=12] …`, see [`soak::Plan`].

use cudarc::{
    cublas::{
        CudaBlas, Gemm, GemmConfig,
        sys::cublasOperation_t::{CUBLAS_OP_N, CUBLAS_OP_T},
    },
    driver::{CudaSlice, CudaStream, result},
};
use gpu_bench::Gpu;
use soak::{Plan, Training};
use std::{process::ExitCode, sync::Arc};

fn main() -> ExitCode {
    let gpu = Gpu::new();
    let done = Plan::from_args().and_then(|plan| soak::run("CUDA and cuBLAS", &plan, || Loop::new(&gpu)));
    done.map_or_else(
        |problem| {
            println!("{problem}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// A loop that launches about the work of a small model's layer, 36 times per step.
struct Loop<'a> {
    gpu: &'a Gpu,
    stream: Arc<CudaStream>,
    blas: CudaBlas,
    inputs: CudaSlice<f32>,
    weights: CudaSlice<f32>,
    outputs: CudaSlice<f32>,
    gradients: CudaSlice<f32>,
    scratch: u64,
    steps: u64,
}

impl<'a> Loop<'a> {
    const BATCH: usize = 64;
    const WIDTH: usize = 512;

    fn new(gpu: &'a Gpu) -> Self {
        let stream = gpu.stream();
        let zeros = |length| stream.alloc_zeros::<f32>(length).expect("memory");
        Self {
            gpu,
            blas: CudaBlas::new(stream.clone()).expect("cuBLAS"),
            inputs: zeros(Self::BATCH * Self::WIDTH),
            weights: zeros(Self::WIDTH * Self::WIDTH),
            outputs: zeros(Self::BATCH * Self::WIDTH),
            gradients: zeros(Self::WIDTH * Self::WIDTH),
            scratch: zeros(16).leak(),
            stream,
            steps: 0,
        }
    }

    /// Runs the product of a layer and the two products of its gradients.
    #[allow(unsafe_code, reason = "cuBLAS is a C library")]
    fn products(&mut self) {
        let (batch, width) = (Self::BATCH as i32, Self::WIDTH as i32);
        let config = |transa, transb, n, k| GemmConfig {
            transa,
            transb,
            m: width,
            n,
            k,
            alpha: 1.0,
            lda: width,
            ldb: width,
            beta: 0.0,
            ldc: width,
        };
        let (plain, of_inputs) =
            (config(CUBLAS_OP_N, CUBLAS_OP_N, batch, width), config(CUBLAS_OP_T, CUBLAS_OP_N, batch, width));
        let of_weights = config(CUBLAS_OP_N, CUBLAS_OP_T, width, batch);
        // SAFETY: the configurations have the sizes of the matrices.
        unsafe {
            self.blas.gemm(plain, &self.weights, &self.inputs, &mut self.outputs).expect("a product");
            self.blas.gemm(of_inputs, &self.weights, &self.outputs, &mut self.inputs).expect("a product");
            self.blas.gemm(of_weights, &self.outputs, &self.inputs, &mut self.gradients).expect("a product");
        }
    }

    #[allow(unsafe_code, reason = "the driver is a C library")]
    fn layer(&mut self, number: usize) {
        let stream = self.stream.cu_stream();
        // SAFETY: every write fits into its memory, which is freed after its last use on the same stream.
        unsafe {
            for kernel in 0..12 {
                let memory = result::malloc_async(stream, 4096).expect("memory");
                if kernel % 4 == 0 {
                    result::memset_d8_async(memory, 0, 64, stream).expect("a fill");
                }
                self.gpu.launch((number + kernel) % 8, 4, 32, &self.stream).expect("a launch");
                result::free_async(memory, stream).expect("memory");
            }
            result::memcpy_htod_async(self.scratch, &[0_u8; 64], stream).expect("a copy");
        }
        self.products();
    }
}

impl Training for Loop<'_> {
    fn step(&mut self) {
        (0..36).for_each(|number| self.layer(number));
        self.steps += 1;
        // A training that reads its loss now and then waits, too.
        if self.steps.is_multiple_of(4) {
            self.synchronize();
        }
    }

    fn synchronize(&mut self) {
        self.stream.synchronize().expect("the stream");
    }

    fn free_memory(&self) -> Option<usize> {
        Some(self.gpu.free_memory())
    }
}
