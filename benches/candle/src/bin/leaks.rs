//! Trains with a planted leak, or with what only looks like one, and prints what the report says about it.
//!
//! ```text
//! leaks CASE [STEPS]
//! ```
//!
//! - `clean`: keeps nothing;
//! - `tensor`: a module keeps a tensor in each step;
//! - `graph`: keeps the loss of each step, and with it the graph that made it;
//! - `list`: keeps a list of numbers on the host in each step;
//! - `cache`: keeps a tensor in each of the first steps, a quarter of all.
//!
//! Uses the first GPU if Candle has CUDA, or else the CPU. Another thread reads the driver's pool all the time, for a
//! peak to compare ours with.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Activation, AdamW, Module, Optimizer, VarBuilder, VarMap, loss};
use cupti_sys::Driver;
use kernspan::{Activity, Allocator, Profiler, Schedule};
use kernspan_candle::{Profiled, nn};
use std::{
    env,
    error::Error,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use tracing::info_span;
use tracing_subscriber::prelude::*;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

const WIDTH: usize = 256;
const BATCH: usize = 64;

/// What the program keeps from step to step.
#[derive(Default)]
struct Kept {
    tensors: Vec<Tensor>,
    lists: Vec<Vec<f32>>,
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let case = arguments.next().unwrap_or_else(|| "clean".to_owned());
    let steps: u64 = arguments.next().map_or(Ok(200), |steps| steps.parse())?;
    if !["clean", "tensor", "graph", "list", "cache"].contains(&case.as_str()) {
        return Err(format!("{case} is not a case: clean, tensor, graph, list or cache").into());
    }
    let device = Device::cuda_if_available(0)?;
    let (layer, profiler) = Profiler::builder()
        .activities([Activity::Host, Activity::Kernels, Activity::Memory, Activity::Heap])
        .schedule(Schedule::new().wait(20).warmup(1).active(4).repeat(3))
        .build()?;
    tracing_subscriber::registry().with(layer).init();

    let variables = VarMap::new();
    let vb = VarBuilder::from_varmap(&variables, DType::F32, &device);
    let layers = (0..4).map(|number| nn::linear(WIDTH, WIDTH, vb.pp(format!("layers.{number}"))));
    let layers = layers.collect::<Result<Vec<_>>>()?;
    let mut optimizer = Profiled::new(AdamW::new_lr(variables.all_vars(), 1e-3)?);
    let (x, y) = (Tensor::randn(0_f32, 1.0, (BATCH, WIDTH), &device)?, Tensor::zeros(BATCH, DType::U32, &device)?);

    let polled = Polled::start();
    let mut kept = Kept::default();
    for step in 0..steps {
        info_span!("train_step").in_scope(|| -> Result<()> {
            let mut hidden = x.clone();
            for layer in &layers {
                hidden = Activation::Gelu.forward(&layer.forward(&hidden)?)?;
            }
            if case == "tensor" || case == "cache" && step < steps / 4 {
                let copy = info_span!("remember").in_scope(|| hidden.detach() * 0.5)?;
                kept.tensors.push(copy);
            }
            if case == "list" {
                info_span!("history").in_scope(|| kept.lists.push(black_box(vec![0.0; BATCH * WIDTH])));
            }
            let loss = loss::cross_entropy(&hidden, &y)?;
            optimizer.backward_step(&loss)?;
            if case == "graph" {
                kept.tensors.push(loss);
            }
            Ok(())
        })?;
        profiler.step();
    }
    device.synchronize()?;
    let peak = polled.end();
    let report = profiler.finish()?;
    println!("case {case}, {steps} steps, {}", report.gpu());
    for series in report.memory_series() {
        let (first, last) = (series.points().first(), series.points().last());
        let bytes = |point: Option<&kernspan::analysis::MemoryPoint>| point.map_or(0, |point| point.bytes);
        let (count, source) = (series.points().len(), series.source());
        println!("{source}: {count} points, {} to {} bytes, peak {}", bytes(first), bytes(last), series.peak());
    }
    for peak_of_window in report.memory().peaks() {
        println!("peak of the windows: {} bytes; of the pool, polled: {peak} bytes", peak_of_window.in_use);
    }
    println!("{}", report.leaks());
    println!("losses: {}", report.losses().total());
    drop(kept);
    Ok(())
}

/// A thread that reads how much of the driver's pool is in use, again and again.
struct Polled {
    thread: thread::JoinHandle<u64>,
    end: Arc<AtomicBool>,
}

impl Polled {
    fn start() -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&end);
        let thread = thread::spawn(move || {
            let mut peak = 0;
            let Ok(driver) = Driver::load() else { return 0 };
            let Ok(device) = driver.device(0) else { return 0 };
            while !is_over.load(Ordering::Relaxed) {
                if let Ok(Some((_, used))) = driver.memory_pool(device) {
                    peak = peak.max(used);
                }
            }
            peak
        });
        Self { thread, end }
    }

    fn end(self) -> u64 {
        self.end.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(0)
    }
}
