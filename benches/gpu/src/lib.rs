//! A GPU with kernels whose names and sizes identify the span that launches them, shared by the programs of this
//! package.

pub mod raw;
pub mod work;

use cudarc::{
    driver::{CudaContext, CudaStream, DriverError, result, sys},
    nvrtc::compile_ptx,
};
use std::{
    ffi::{CString, c_void},
    sync::Arc,
};

/// Names of the spans and of the kernels that are launched in them.
pub const NAMES: [&str; 8] = ["embed", "attention", "mlp", "rmsnorm", "loss", "backward", "optimizer", "data"];

/// A kernel that runs for a number of cycles, and writes its start and end by the GPU's own clock.
const SPIN: &str = r#"
__device__ long long now() { long long t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }
extern "C" __global__ void spin(long long cycles, long long* times) {
    if (times) times[0] = now();
    long long start = clock64();
    while (clock64() - start < cycles);
    if (times) times[1] = now();
}
"#;

/// A CUDA context with an empty kernel for each name, and one that spins.
#[derive(Debug)]
pub struct Gpu {
    /// The context of device 0.
    pub context: Arc<CudaContext>,
    kernels: Vec<sys::CUfunction>,
    spin: sys::CUfunction,
}

// SAFETY: handles of the driver may be used on any thread on which the context is current.
#[allow(unsafe_code, reason = "handles of a C library")]
unsafe impl Send for Gpu {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "handles of a C library")]
unsafe impl Sync for Gpu {}

impl Gpu {
    /// Compiles the kernels.
    ///
    /// # Panics
    ///
    /// Without a GPU or NVRTC, saying so.
    #[allow(unsafe_code, reason = "the driver is a C library")]
    pub fn new() -> Self {
        let context = CudaContext::new(0).expect("a CUDA device");
        // cudarc's events for each buffer would be part of the measured time.
        // SAFETY: the programs order their streams themselves.
        unsafe { context.disable_event_tracking() };
        let mut source: String = NAMES
            .iter()
            .map(|name| format!("extern \"C\" __global__ void {name}(int* p) {{ if (p) *p = blockIdx.x; }}\n"))
            .collect();
        source += SPIN;
        let text = CString::new(compile_ptx(source).expect("NVRTC").to_src()).expect("PTX");
        // SAFETY: it is PTX that NVRTC made; the module is never unloaded.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) }.expect("a module");
        let function = |name: &str| {
            // SAFETY: the module is loaded.
            unsafe { result::module::get_function(module, CString::new(name).expect("a name")) }.expect("a kernel")
        };
        let kernels = NAMES.iter().map(|name| function(name)).collect();
        let spin = function("spin");
        Self { context, kernels, spin }
    }

    /// Makes the context current on this thread, and returns a new stream.
    ///
    /// # Panics
    ///
    /// If the driver fails.
    pub fn stream(&self) -> Arc<CudaStream> {
        self.context.bind_to_thread().expect("the context");
        self.context.new_stream().expect("a stream")
    }

    /// Launches the kernel with this name on `grid` blocks of `block` threads, by a direct call of the driver.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    #[allow(unsafe_code, reason = "the driver is a C library")]
    #[inline]
    pub fn launch(&self, name: usize, grid: u32, block: u32, stream: &CudaStream) -> Result<(), DriverError> {
        let mut pointer: u64 = 0;
        let mut arguments = [std::ptr::from_mut(&mut pointer).cast::<c_void>()];
        // SAFETY: the kernel has one parameter, a pointer that may be null.
        unsafe {
            sys::cuLaunchKernel(
                self.kernels[name],
                grid,
                1,
                1,
                block,
                1,
                1,
                0,
                stream.cu_stream(),
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
        .result()
    }

    /// Launches a kernel that runs for a number of cycles.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    pub fn spin(&self, cycles: i64, stream: &CudaStream) -> Result<(), DriverError> {
        self.spin_with_times(cycles, 0, stream)
    }

    /// Launches a kernel that runs for a number of cycles, and writes its start and end by the GPU's clock to an
    /// address, in nanoseconds.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    #[allow(unsafe_code, reason = "the driver is a C library")]
    pub fn spin_with_times(&self, cycles: i64, times: u64, stream: &CudaStream) -> Result<(), DriverError> {
        let (mut cycles, mut times) = (cycles, times);
        let mut arguments = [std::ptr::from_mut(&mut cycles).cast::<c_void>(), std::ptr::from_mut(&mut times).cast()];
        // SAFETY: the kernel's parameters are a number and a pointer that may be null.
        unsafe {
            sys::cuLaunchKernel(
                self.spin,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream.cu_stream(),
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
        .result()
    }

    /// Returns the free bytes of the GPU's memory.
    ///
    /// # Panics
    ///
    /// If the driver fails.
    pub fn free_memory(&self) -> usize {
        self.context.mem_get_info().expect("the context").0
    }
}

impl Default for Gpu {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the resident memory of this process in bytes.
pub fn resident_memory() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// Makes a span with one of the [`NAMES`] and a number.
#[macro_export]
macro_rules! named_span {
    ($name:expr, $n:expr) => {
        match $name {
            0 => ::tracing::info_span!("embed", n = $n),
            1 => ::tracing::info_span!("attention", n = $n),
            2 => ::tracing::info_span!("mlp", n = $n),
            3 => ::tracing::info_span!("rmsnorm", n = $n),
            4 => ::tracing::info_span!("loss", n = $n),
            5 => ::tracing::info_span!("backward", n = $n),
            6 => ::tracing::info_span!("optimizer", n = $n),
            _ => ::tracing::info_span!("data", n = $n),
        }
    };
}
