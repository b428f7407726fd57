//! Loops that are bound by the GPU, whose launch queue is full: most kernels that run in a short window were launched
//! before it. `queues list` prints the names. `queues NAME FOLDER` times the steps of one without a profiler, with its
//! products of matrices in `f32` and in TF32, with and without a synchronization at the end of each step, in turns;
//! then it records windows of 1, 3 and 6 steps of each, and prints a line of JSON for each pair of times.

use cudarc::{
    cublas::{
        CudaBlas, Gemm, GemmConfig,
        sys::{cublasMath_t, cublasOperation_t::CUBLAS_OP_N, cublasSetMathMode},
    },
    driver::{CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg},
    nvrtc::compile_ptx,
};
use gpu_bench::Gpu;
use kernspan::{Profiler, Schedule};
use std::{path::Path, sync::Arc, time::Instant};
use tracing::{info_span, instrument};
use tracing_subscriber::prelude::*;

/// Any error: the program prints it and ends.
type Failure = Box<dyn std::error::Error>;

/// The work of a step: products of an `m`×`k` by a `k`×`n` matrix, and element-wise kernels over so many numbers.
#[derive(Clone, Copy, Debug)]
struct Loop {
    name: &'static str,
    kernels: usize,
    products: usize,
    /// The matrices' `m`, `n` and `k`.
    size: [usize; 3],
    elements: usize,
}

const LARGE: [usize; 3] = [4096, 2048, 2048];
const MIDDLE: [usize; 3] = [2048, 1024, 1024];
const SMALL: [usize; 3] = [1024, 1024, 1024];
const MI: usize = 1 << 20;

/// About 50, 200, 700 and 3,000 kernels a step; products take most of the GPU's time, about half of it, or a quarter.
#[rustfmt::skip]
const LOOPS: [Loop; 12] = [
    Loop { name: "50-most", kernels: 50, products: 10, size: LARGE, elements: 4 * MI },
    Loop { name: "50-half", kernels: 50, products: 10, size: MIDDLE, elements: 8 * MI },
    Loop { name: "50-few", kernels: 50, products: 5, size: MIDDLE, elements: 16 * MI },
    Loop { name: "200-most", kernels: 200, products: 60, size: MIDDLE, elements: 2 * MI },
    Loop { name: "200-half", kernels: 200, products: 50, size: SMALL, elements: 4 * MI },
    Loop { name: "200-few", kernels: 200, products: 20, size: MIDDLE, elements: 16 * MI },
    Loop { name: "700-most", kernels: 700, products: 200, size: SMALL, elements: MI },
    Loop { name: "700-half", kernels: 700, products: 100, size: MIDDLE, elements: 4 * MI },
    Loop { name: "700-few", kernels: 700, products: 100, size: SMALL, elements: 8 * MI },
    Loop { name: "3000-most", kernels: 3000, products: 1000, size: SMALL, elements: MI },
    Loop { name: "3000-half", kernels: 3000, products: 500, size: SMALL, elements: 4 * MI },
    Loop { name: "3000-few", kernels: 3000, products: 250, size: MIDDLE, elements: 8 * MI },
];

/// Rounds of each variant, the seconds that one takes, and its fewest steps.
const ROUNDS: usize = 5;
const ROUND: f64 = 0.3;
const STEPS: usize = 10;
/// Launches that fill the queue, which holds about a thousand.
const QUEUE: usize = 1500;
/// Steps that the schedule leaves out, and those in which it warms up.
const WAIT: u64 = 10;
const WARMUP: u64 = 2;

const SOURCE: &str = r#"
#define ALL unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x
extern "C" __global__ void fill(float* x, unsigned n) {
    for (ALL) { unsigned h = i * 2654435761u; h ^= h >> 13; h *= 0x5bd1e995; x[i] = (int)(h >> 8) * 1.2e-7f - 1.0f; }
}
extern "C" __global__ void bias_relu(float* x, unsigned n) { for (ALL) x[i] = fmaxf(0.999f * x[i] + 0.001f, 0.0f); }
extern "C" __global__ void bias_relu_backward(float* x, unsigned n) {
    for (ALL) x[i] = x[i] > 0.0f ? 0.999f * x[i] : 0.001f;
}
extern "C" __global__ void adam(float* x, unsigned n) { for (ALL) x[i] -= 0.001f * x[i] * rsqrtf(x[i] * x[i] + 1e-8f); }
"#;

/// How products are computed, and whether the host waits for the GPU at the end of each step.
#[derive(Clone, Copy, Debug)]
struct Variant {
    tf32: bool,
    sync: bool,
}

/// A loop with all that its steps need.
struct Training {
    of: Loop,
    stream: Arc<CudaStream>,
    blas: CudaBlas,
    forward: CudaFunction,
    backward: CudaFunction,
    adam: CudaFunction,
    matrices: [CudaSlice<f32>; 3],
    activations: CudaSlice<f32>,
}

impl Training {
    #[allow(unsafe_code, reason = "kernels are C")]
    fn new(of: Loop) -> Result<Self, Failure> {
        let gpu = Gpu::new();
        let stream = gpu.stream();
        let module = gpu.context.load_module(compile_ptx(SOURCE)?)?;
        let [m, n, k] = of.size;
        let mut matrices = [stream.alloc_zeros(m * k)?, stream.alloc_zeros(k * n)?, stream.alloc_zeros(m * n)?];
        let mut activations = stream.alloc_zeros(of.elements)?;
        let fill = module.load_function("fill")?;
        // Numbers that are all the same need less power, and the GPU is faster.
        for numbers in matrices[..2].iter_mut().chain([&mut activations]) {
            let count = numbers.len() as u32;
            // SAFETY: the kernel takes a pointer and how many numbers are there.
            unsafe { stream.launch_builder(&fill).arg(numbers).arg(&count).launch(config()) }?;
        }
        let [forward, backward, adam] =
            ["bias_relu", "bias_relu_backward", "adam"].map(|name| module.load_function(name));
        let blas = CudaBlas::new(stream.clone())?;
        Ok(Self { of, stream, blas, forward: forward?, backward: backward?, adam: adam?, matrices, activations })
    }

    #[allow(unsafe_code, reason = "cuBLAS is a C library")]
    fn set_tf32(&self, tf32: bool) -> Result<(), Failure> {
        let mode = if tf32 { cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH } else { cublasMath_t::CUBLAS_DEFAULT_MATH };
        // SAFETY: the handle is alive.
        Ok(unsafe { cublasSetMathMode(*self.blas.handle(), mode) }.result()?)
    }

    /// A third of the products are of the forward pass, and a tenth of the other kernels of the optimizer.
    #[instrument(skip_all)]
    fn train_step(&mut self, sync: bool) -> Result<(), Failure> {
        let Loop { kernels, products, .. } = self.of;
        let each = (kernels - products) * 9 / 10 / products;
        info_span!("forward").in_scope(|| (0..products / 3).try_for_each(|_| self.layer(false, each)))?;
        info_span!("backward").in_scope(|| (products / 3..products).try_for_each(|_| self.layer(true, each)))?;
        let rest = kernels - products - each * products;
        info_span!("optimizer").in_scope(|| (0..rest).try_for_each(|_| self.elements(&self.adam.clone())))?;
        if sync {
            self.stream.synchronize()?;
        }
        Ok(())
    }

    fn layer(&mut self, backward: bool, kernels: usize) -> Result<(), Failure> {
        let _span = info_span!("layer").entered();
        self.multiply()?;
        let function = if backward { &self.backward } else { &self.forward }.clone();
        (0..kernels).try_for_each(|_| self.elements(&function))
    }

    #[allow(unsafe_code, reason = "cuBLAS is a C library")]
    fn multiply(&mut self) -> Result<(), Failure> {
        let [m, n, k] = self.of.size.map(|length| length as i32);
        let (transa, transb) = (CUBLAS_OP_N, CUBLAS_OP_N);
        let config = GemmConfig { transa, transb, m, n, k, alpha: 1.0, lda: m, ldb: k, beta: 0.0, ldc: m };
        let [left, right, result] = &mut self.matrices;
        // SAFETY: the configuration has the sizes of the matrices.
        Ok(unsafe { self.blas.gemm(config, left, right, result) }?)
    }

    #[allow(unsafe_code, reason = "kernels are C")]
    fn elements(&mut self, function: &CudaFunction) -> Result<(), Failure> {
        let count = self.of.elements as u32;
        // SAFETY: the kernel takes a pointer and how many numbers are there.
        unsafe { self.stream.launch_builder(function).arg(&mut self.activations).arg(&count).launch(config()) }?;
        Ok(())
    }

    /// Returns the microseconds of a step without a profiler, from an idle GPU to an idle GPU.
    fn time(&mut self, variant: Variant, steps: usize) -> Result<f64, Failure> {
        self.set_tf32(variant.tf32)?;
        self.stream.synchronize()?;
        let start = Instant::now();
        (0..steps).try_for_each(|_| self.train_step(variant.sync))?;
        self.stream.synchronize()?;
        Ok(start.elapsed().as_secs_f64() * 1e6 / steps as f64)
    }

    /// Records a window of so many steps to a file, while the queue is full if nothing waits.
    fn record(&mut self, variant: Variant, steps: u64, file: &Path) -> Result<(), Failure> {
        self.set_tf32(variant.tf32)?;
        let parts = file.with_extension("parts");
        let schedule = Schedule::new().wait(WAIT).warmup(WARMUP).active(steps).repeat(1);
        let (layer, profiler) = Profiler::builder().schedule(schedule).raw_to_dir(&parts).build()?;
        if !profiler.gpu().is_available() {
            return Err(profiler.gpu().to_string().into());
        }
        let fill = QUEUE / self.of.kernels + 1;
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            (0..fill).try_for_each(|_| self.train_step(variant.sync))?;
            for _ in 0..WAIT + WARMUP + steps + fill as u64 {
                self.train_step(variant.sync)?;
                profiler.step();
            }
            self.stream.synchronize()?;
            Ok::<_, Failure>(())
        })?;
        let report = profiler.finish()?;
        let [recorded] = report.files() else {
            return Err(format!("{} files instead of one window", report.files().len()).into());
        };
        std::fs::rename(recorded, file)?;
        std::fs::remove_dir_all(&parts)?;
        if report.losses().is_empty() { Ok(()) } else { Err(report.losses().to_string().into()) }
    }
}

/// Four blocks for each of some 132 multiprocessors.
fn config() -> LaunchConfig {
    LaunchConfig { grid_dim: (528, 1, 1), block_dim: (512, 1, 1), shared_mem_bytes: 0 }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["list"] => {
            LOOPS.iter().for_each(|of| println!("{}", of.name));
            Ok(())
        }
        [name, folder] => {
            let of = LOOPS.iter().find(|of| of.name == *name).ok_or("unknown loop: see `queues list`")?;
            run(*of, Path::new(folder))
        }
        _ => Err("usage: queues list | queues NAME FOLDER".into()),
    }
}

fn run(of: Loop, folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)?;
    let mut training = Training::new(of)?;
    for sync in [false, true] {
        let variants = [false, true].map(|tf32| Variant { tf32, sync });
        let mut means = [const { Vec::new() }; 2];
        let mut steps = [STEPS; 2];
        for (steps, variant) in steps.iter_mut().zip(variants) {
            training.time(variant, STEPS)?;
            *steps = ((ROUND * 1e6 / training.time(variant, STEPS)?) as usize).max(STEPS);
        }
        for _ in 0..ROUNDS {
            for ((means, steps), variant) in means.iter_mut().zip(steps).zip(variants) {
                means.push(training.time(variant, steps)?);
            }
        }
        let median = |means: &Vec<f64>| {
            let mut sorted = means.clone();
            sorted.sort_by(f64::total_cmp);
            sorted[ROUNDS / 2]
        };
        let [before, after] = [&means[0], &means[1]].map(median);
        println!(
            "{{\"loop\": {:?}, \"sync\": {sync}, \"f32_us\": {before:.1}, \"tf32_us\": {after:.1}, \"means_us\": \
             {means:.1?}}}",
            of.name
        );
        let wait = if sync { "sync" } else { "async" };
        for steps in [1, 3, 6] {
            training.record(variants[0], steps, &folder.join(format!("{}-{wait}-f32-{steps}.kernspan", of.name)))?;
        }
        // Nothing is left to find with the fix, for which one window is enough.
        training.record(variants[1], 3, &folder.join(format!("{}-{wait}-tf32-3.kernspan", of.name)))?;
    }
    Ok(())
}
