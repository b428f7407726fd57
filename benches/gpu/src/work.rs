//! Work whose operations and bytes are known: products of matrices, and copies.

use crate::Gpu;
use cudarc::{
    cublas::{CudaBlas, result::gemm_ex, sys},
    driver::{CudaSlice, CudaStream, LaunchConfig, PushKernelArg},
    nvrtc::compile_ptx,
};
use std::{ffi::c_void, sync::Arc};

/// The rows and columns of the matrices.
pub const SIZE: usize = 8192;
/// The bytes that a copy reads, and writes.
pub const COPIED: usize = 2 << 30;

const COPY: &str = r#"
extern "C" __global__ void copy_all(const float4* a, float4* b, unsigned long long n) {
    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (unsigned long long)blockDim.x) b[i] = a[i];
}
extern "C" __global__ void fill(unsigned short* p, unsigned long long n) {
    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (unsigned long long)blockDim.x) {
        unsigned h = (unsigned)i * 2654435761u; h ^= h >> 13; h *= 0x5bd1e995; h ^= h >> 15;
        p[i] = (unsigned short)(0x3c00 | (h & 0x83ff));
    }
}
"#;

/// Work whose FLOPs and bytes are known.
#[allow(missing_debug_implementations, reason = "cudarc's parts have none")]
pub struct Work {
    /// The stream that all of it runs on.
    pub stream: Arc<CudaStream>,
    blas: CudaBlas,
    copy: cudarc::driver::CudaFunction,
    matrices: [CudaSlice<u16>; 3],
    buffers: [CudaSlice<u8>; 2],
}

#[allow(unsafe_code, reason = "kernels and cuBLAS are C")]
impl Work {
    /// Allocates the matrices and buffers.
    ///
    /// # Panics
    ///
    /// If the driver, NVRTC or cuBLAS fails.
    pub fn new(gpu: &Gpu) -> Self {
        let stream = gpu.stream();
        let module = gpu.context.load_module(compile_ptx(COPY).expect("NVRTC")).expect("a module");
        let function = |name| module.load_function(name).expect("a kernel");
        let matrix = || stream.alloc_zeros::<u16>(SIZE * SIZE).expect("memory");
        let buffer = || stream.alloc_zeros::<u8>(COPIED).expect("memory");
        let mut matrices = [matrix(), matrix(), matrix()];
        let fill = function("fill");
        for matrix in &mut matrices[..2] {
            let count = (SIZE * SIZE) as u64;
            let mut launch = stream.launch_builder(&fill);
            // SAFETY: the kernel takes a pointer and a number.
            unsafe { launch.arg(matrix).arg(&count).launch(config(1024, 256)) }.expect("a launch");
        }
        let blas = CudaBlas::new(stream.clone()).expect("cuBLAS");
        Self { blas, copy: function("copy_all"), matrices, buffers: [buffer(), buffer()], stream }
    }

    /// Multiplies two matrices of bf16, of so many rows and columns, at most [`SIZE`].
    ///
    /// # Panics
    ///
    /// If cuBLAS fails.
    pub fn multiply(&mut self, size: usize) {
        use cudarc::driver::{DevicePtr, DevicePtrMut};
        let n = size as i32;
        let (one, zero) = (1.0_f32, 0.0_f32);
        let [a, b, c] = &mut self.matrices;
        let (a, b, c) = (a.device_ptr(&self.stream).0, b.device_ptr(&self.stream).0, c.device_ptr_mut(&self.stream).0);
        let kind = sys::cudaDataType_t::CUDA_R_16BF;
        let (none, compute) = (sys::cublasOperation_t::CUBLAS_OP_N, sys::cublasComputeType_t::CUBLAS_COMPUTE_32F);
        let (alpha, beta) = (std::ptr::from_ref(&one).cast::<c_void>(), std::ptr::from_ref(&zero).cast::<c_void>());
        // SAFETY: the matrices have at least the given sizes.
        unsafe {
            gemm_ex(
                *self.blas.handle(),
                none,
                none,
                n,
                n,
                n,
                alpha,
                a as *const c_void,
                kind,
                n,
                b as *const c_void,
                kind,
                n,
                beta,
                c as *mut c_void,
                kind,
                n,
                compute,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .expect("a product");
    }

    /// Copies so many bytes within the GPU's memory by a kernel, at most [`COPIED`].
    ///
    /// # Panics
    ///
    /// If the launch fails.
    pub fn copy(&mut self, bytes: usize) {
        let count = (bytes / 16) as u64;
        let [from, to] = &mut self.buffers;
        let mut launch = self.stream.launch_builder(&self.copy);
        // SAFETY: the kernel takes two pointers and the number of elements of 16 bytes.
        unsafe { launch.arg(from).arg(to).arg(&count).launch(config(132 * 16, 512)) }.expect("a launch");
    }

    /// Copies memory of the host to the GPU, at most [`COPIED`] bytes.
    ///
    /// # Panics
    ///
    /// If the driver fails.
    pub fn upload(&mut self, bytes: &[u8]) {
        let mut to = self.buffers[0].slice_mut(..bytes.len());
        self.stream.memcpy_htod(bytes, &mut to).expect("a copy");
    }

    /// Copies from the GPU to memory of the host, at most [`COPIED`] bytes.
    ///
    /// # Panics
    ///
    /// If the driver fails.
    pub fn download(&mut self, bytes: &mut [u8]) {
        let from = self.buffers[0].slice(..bytes.len());
        self.stream.memcpy_dtoh(&from, bytes).expect("a copy");
    }

    /// Waits until all of it is done.
    ///
    /// # Panics
    ///
    /// If some of it failed.
    pub fn wait(&self) {
        self.stream.synchronize().expect("the GPU");
    }
}

fn config(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}
