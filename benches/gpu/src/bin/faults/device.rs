//! The GPU of a training: its stream, its kernels, and calls of the driver.

use crate::Failure;
use cudarc::{
    driver::{CudaContext, CudaStream, DriverError, result, sys},
    nvrtc::compile_ptx,
};
use gpu_bench::Gpu;
use std::{
    ffi::{CString, c_void},
    sync::Arc,
};

/// A kernel of the training, in the order of [`NAMES`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kernel {
    /// A kernel of the forward pass.
    Forward,
    /// The kernel that computes the loss.
    Loss,
    /// A kernel of the backward pass.
    Backward,
    /// A kernel of the optimizer.
    Optimizer,
}

const NAMES: [&str; 4] = ["layer_forward", "cross_entropy", "layer_backward", "adam"];

/// Threads of a block.
pub(crate) const THREADS: u32 = 256;

/// The body of each kernel: a chain of dependent multiply-adds, so that a kernel takes as long on few blocks as on
/// many, up to eight blocks on each multiprocessor. The result is written, or the compiler would leave the chain out.
const BODY: &str = "(float* out, int iterations) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = i;
    #pragma unroll 32
    for (int n = 0; n < iterations; n++) x = fmaf(x, 0.999f, 0.001f);
    out[i] = x;
}
";

/// A GPU with one stream that the training computes on, its kernels, and memory for activations.
#[derive(Debug)]
pub(crate) struct Device {
    /// The context of device 0.
    pub(crate) context: Arc<CudaContext>,
    /// The stream on which kernels are launched.
    pub(crate) stream: Arc<CudaStream>,
    /// The activations, of which the first number is the loss.
    pub(crate) activations: sys::CUdeviceptr,
    kernels: Vec<sys::CUfunction>,
}

impl Device {
    /// Bytes of the activations.
    pub(crate) const ACTIVATION_BYTES: usize = 16 << 20;

    /// Compiles the kernels.
    pub(crate) fn new() -> Result<Self, Failure> {
        let gpu = Gpu::new();
        let stream = gpu.stream();
        let source: String = NAMES.iter().map(|name| declaration(name) + BODY).collect();
        let module = load(&CString::new(compile_ptx(source)?.to_src())?)?;
        let kernels = NAMES.iter().map(|name| function(module, name)).collect::<Result<_, _>>()?;
        let activations = allocate(Self::ACTIVATION_BYTES)?;
        Ok(Self { context: gpu.context, stream, activations, kernels })
    }

    /// Launches a kernel that writes to the activations.
    #[inline]
    pub(crate) fn launch(&self, kernel: Kernel, blocks: u32, iterations: u32) -> Result<(), DriverError> {
        self.launch_function(self.kernels[kernel as usize], blocks, iterations, self.activations)
    }

    /// Launches a kernel that writes to this memory, which must have four bytes for each thread.
    #[inline]
    pub(crate) fn launch_to(
        &self,
        kernel: Kernel,
        blocks: u32,
        iterations: u32,
        memory: sys::CUdeviceptr,
    ) -> Result<(), DriverError> {
        self.launch_function(self.kernels[kernel as usize], blocks, iterations, memory)
    }

    /// Launches a function that has the parameters of the kernels.
    #[allow(unsafe_code, reason = "the driver is a C library")]
    #[inline]
    pub(crate) fn launch_function(
        &self,
        function: sys::CUfunction,
        blocks: u32,
        iterations: u32,
        memory: sys::CUdeviceptr,
    ) -> Result<(), DriverError> {
        let (mut memory, mut iterations) = (memory, iterations);
        let mut arguments =
            [std::ptr::from_mut(&mut memory).cast::<c_void>(), std::ptr::from_mut(&mut iterations).cast()];
        // SAFETY: the parameters are a pointer and a number of four bytes, and the memory is large enough.
        unsafe {
            sys::cuLaunchKernel(
                function,
                blocks,
                1,
                1,
                THREADS,
                1,
                1,
                0,
                self.stream.cu_stream(),
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
        .result()
    }

    /// Copies from the host on a stream. Pinned memory must not be written until the copy is done.
    #[allow(unsafe_code, reason = "the driver is a C library")]
    pub(crate) fn copy_to(
        &self,
        memory: sys::CUdeviceptr,
        source: &[u8],
        stream: &CudaStream,
    ) -> Result<(), DriverError> {
        // SAFETY: callers own as many bytes of the GPU's memory, and keep the source for the whole run.
        unsafe { result::memcpy_htod_async(memory, source, stream.cu_stream()) }
    }

    /// Copies the beginning of the activations to the host, and waits for the copy.
    #[allow(unsafe_code, reason = "the driver is a C library")]
    pub(crate) fn read(&self, destination: &mut [u8]) -> Result<(), DriverError> {
        assert!(destination.len() <= Self::ACTIVATION_BYTES, "more bytes than activations");
        // SAFETY: there are as many bytes, and the copy is waited for.
        unsafe { result::memcpy_dtoh_async(destination, self.activations, self.stream.cu_stream()) }?;
        self.stream.synchronize()
    }

    /// Waits for all work on the GPU.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        self.context.synchronize()
    }
}

/// Returns the declaration of a kernel without its parameters.
pub(crate) fn declaration(name: &str) -> String {
    format!("extern \"C\" __global__ void __launch_bounds__({THREADS}) {name}")
}

/// Loads a module from PTX. It is never unloaded.
#[allow(unsafe_code, reason = "the driver is a C library")]
pub(crate) fn load(ptx: &CString) -> Result<sys::CUmodule, DriverError> {
    // SAFETY: the text ends with a null byte.
    unsafe { result::module::load_data(ptx.as_ptr().cast()) }
}

/// Returns a kernel of a loaded module.
#[allow(unsafe_code, reason = "the driver is a C library")]
pub(crate) fn function(module: sys::CUmodule, name: &str) -> Result<sys::CUfunction, Failure> {
    let name = CString::new(name)?;
    // SAFETY: modules are never unloaded.
    Ok(unsafe { result::module::get_function(module, name) }?)
}

/// Loads a kernel now, and not when it is first launched.
#[allow(unsafe_code, reason = "the driver is a C library")]
pub(crate) fn load_function(function: sys::CUfunction) -> Result<(), DriverError> {
    // SAFETY: modules are never unloaded.
    unsafe { sys::cuFuncLoad(function) }.result()
}

/// Allocates memory of the GPU, by the call that waits.
#[allow(unsafe_code, reason = "the driver is a C library")]
pub(crate) fn allocate(bytes: usize) -> Result<sys::CUdeviceptr, DriverError> {
    // SAFETY: the memory is only read as bytes and numbers, of which all are valid.
    unsafe { result::malloc_sync(bytes) }
}

/// Allocates pinned memory of the host for the whole run, and writes to it.
#[allow(unsafe_code, reason = "the driver is a C library")]
pub(crate) fn pinned(bytes: usize) -> Result<&'static mut [u8], DriverError> {
    // SAFETY: the memory has as many bytes and is never freed, and all of it is written before there is a reference.
    unsafe {
        let memory = result::malloc_host(bytes, 0)?.cast::<u8>();
        memory.write_bytes(1, bytes);
        Ok(std::slice::from_raw_parts_mut(memory, bytes))
    }
}
