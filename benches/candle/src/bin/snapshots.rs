//! Trains while every allocation is followed, and compares snapshots with a count between the program and the driver
//! (`counting.c`, which has to be preloaded).
//!
//! ```text
//! snapshots [STEPS] [FOLDER]
//! ```
//!
//! Windows are short, and most steps are in none. Threads allocate alongside. A snapshot is taken in every seventh step
//! while all of them stand still. At the end, tensors are kept until an allocation fails, and the snapshots that were
//! taken automatically are written to the folder.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Activation, AdamW, Module, Optimizer, VarBuilder, VarMap, loss};
use kernspan::{Activity, MemorySnapshots, Profiler, Schedule, analysis::MemorySource, trace::DeviceId};
use kernspan_candle::{Profiled, nn};
use std::{env, error::Error, sync::RwLock, time::Instant};
use tracing::info_span;
use tracing_subscriber::prelude::*;

const WIDTH: usize = 256;
const BATCH: usize = 64;
const THREADS: usize = 2;

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let steps: u64 = arguments.next().map_or(Ok(200), |steps| steps.parse())?;
    let folder = arguments.next().unwrap_or_else(|| "snapshots".to_owned());
    let counted = counting::Counted::load().ok_or("counting.so is not preloaded: see counting.c")?;
    let (layer, profiler) = Profiler::builder()
        .activities([Activity::Host, Activity::Kernels, Activity::Memory])
        .schedule(Schedule::new().wait(5).warmup(1).active(1))
        .memory_snapshots(MemorySnapshots::to_dir(&folder))
        .build()?;
    tracing_subscriber::registry().with(layer).init();
    let device = Device::new_cuda(0)?;
    println!("{}", profiler.gpu());

    let variables = VarMap::new();
    let vb = VarBuilder::from_varmap(&variables, DType::F32, &device);
    let layers = (0..4).map(|number| nn::linear(WIDTH, WIDTH, vb.pp(format!("layers.{number}"))));
    let layers = layers.collect::<Result<Vec<_>>>()?;
    let mut optimizer = Profiled::new(AdamW::new_lr(variables.all_vars(), 1e-3)?);
    let (x, y) = (Tensor::randn(0_f32, 1.0, (BATCH, WIDTH), &device)?, Tensor::zeros(BATCH, DType::U32, &device)?);

    // Held for reading while a thread allocates and frees, and for writing while a snapshot is taken.
    let still = RwLock::new(false);
    let (mut compared, mut unequal, mut slowest) = (0, 0, 0.0_f64);
    std::thread::scope(|scope| -> std::result::Result<(), Box<dyn Error>> {
        for thread in 0..THREADS {
            let (still, device) = (&still, device.clone());
            scope.spawn(move || -> Result<()> {
                let _loader = info_span!("loader").entered();
                let mut batches = Vec::new();
                for round in 0.. {
                    let over = still.read().unwrap_or_else(std::sync::PoisonError::into_inner);
                    if *over {
                        break;
                    }
                    batches.push(info_span!("batch").in_scope(|| Tensor::zeros(1000 + thread, DType::F32, &device))?);
                    if round % 5 == 4 {
                        batches.clear();
                    }
                }
                Ok(())
            });
        }
        for step in 0..steps {
            info_span!("train_step").in_scope(|| -> Result<()> {
                let mut hidden = x.clone();
                for layer in &layers {
                    hidden = Activation::Gelu.forward(&layer.forward(&hidden)?)?;
                }
                let loss = loss::cross_entropy(&hidden, &y)?;
                optimizer.backward_step(&loss)
            })?;
            if step % 7 == 6 || step + 1 == steps {
                let mut over = still.write().unwrap_or_else(std::sync::PoisonError::into_inner);
                let start = Instant::now();
                let snapshot = profiler.memory_snapshot()?;
                slowest = slowest.max(start.elapsed().as_secs_f64());
                let (ours, theirs) = (snapshot.gpus()[0], (counted.bytes(), counted.allocations()));
                compared += 1;
                if (ours.held, ours.allocations) != theirs {
                    unequal += 1;
                    println!("step {step}: {ours}, but counted {theirs:?}");
                }
                if step + 1 == steps {
                    print!("{snapshot}");
                    *over = true;
                }
            }
            profiler.step();
        }
        Ok(())
    })?;
    println!("{compared} snapshots compared, {unequal} unequal; {} calls in all", counted.calls());
    println!("the slowest took {:.3} ms", slowest * 1e3);
    let gpu = MemorySource::Gpu(DeviceId::new(0));
    println!("peak {:?}, counted {}", profiler.peak_memory(gpu), counted.peak());

    let mut kept = Vec::new();
    let failed = loop {
        let _cache = info_span!("cache").entered();
        match Tensor::zeros((1 << 30) / 4, DType::F32, &device) {
            Ok(tensor) => kept.push(tensor),
            Err(error) => break error,
        }
        profiler.step();
    };
    println!("kept {} tensors of 1 GiB; then {failed}", kept.len());
    let counted = (counted.bytes(), counted.allocations());
    drop(kept);
    let report = profiler.finish()?;
    for snapshot in report.memory_snapshots() {
        print!("{snapshot}");
    }
    let last = report.memory_snapshots().last().ok_or("no snapshot was taken automatically")?.gpus()[0];
    let is_equal = (last.held, last.allocations) == counted;
    println!("the last one is {} to the count", if is_equal { "equal" } else { "NOT equal" });
    for series in report.memory_series() {
        println!("{}: {} points, peak {}", series.source(), series.points().len(), series.peak());
    }
    println!("losses: {}", report.losses().total());
    if unequal > 0 || !is_equal { Err("snapshots are not exact".into()) } else { Ok(()) }
}

/// The functions of `counting.c`.
#[allow(unsafe_code, reason = "the library is in C")]
mod counting {
    use std::ffi::{CStr, c_char, c_void};

    type Count = unsafe extern "C" fn() -> u64;

    pub(super) struct Counted([Count; 4]);

    impl Counted {
        pub(super) fn load() -> Option<Self> {
            unsafe extern "C" {
                fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
            }
            let function = |name: &CStr| {
                // SAFETY: null stands for all libraries of the process.
                let function = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
                // SAFETY: this is the type of these functions.
                (!function.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Count>(function) })
            };
            let functions = [c"counted_bytes", c"counted_allocations", c"counted_calls", c"counted_peak"].map(function);
            functions.into_iter().collect::<Option<Vec<_>>>()?.try_into().ok().map(Self)
        }

        fn count(&self, index: usize) -> u64 {
            // SAFETY: it takes nothing.
            unsafe { (self.0[index])() }
        }

        pub(super) fn bytes(&self) -> u64 {
            self.count(0)
        }

        pub(super) fn allocations(&self) -> u64 {
            self.count(1)
        }

        pub(super) fn calls(&self) -> u64 {
            self.count(2)
        }

        pub(super) fn peak(&self) -> u64 {
            self.count(3)
        }
    }
}
