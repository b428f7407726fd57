//! Trains with a planted leak, or with none, and prints what the report says about it.
//!
//! ```text
//! leaks CASE [STEPS]
//! ```
//!
//! - `clean`: keeps nothing;
//! - `tensor`: a module keeps a tensor in each forward pass;
//! - `loader`: four threads load batches, and each keeps what it has made them of;
//! - `threads`: each batch is loaded by a thread of its own, which keeps nothing; but Burn has a pool for each of up to
//!   128 threads, and a pool keeps what it has taken from the device.
//!
//! Uses Burn's default device: the GPU with the feature `cuda`, Vulkan with `burn/vulkan`, or else the CPU, which has
//! neither pools nor threads of its own, so that the heap has the tensors. The model has only element-wise operations,
//! which Mesa's Vulkan on the CPU can run.

use burn::{
    module::{Module, Param},
    optim::{AdamWConfig, GradientsParams, ModuleOptimizer},
    tensor::{Device, Distribution, Tensor, activation::gelu},
};
use kernspan::{Activity, Allocator, Profiler, Schedule, analysis::MemoryPoint};
use kernspan_burn::attach;
use std::{
    env,
    error::Error,
    sync::mpsc::{self, Receiver},
    thread::{self, JoinHandle},
};
use tracing::info_span;
use tracing_subscriber::prelude::*;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

const CASES: [&str; 4] = ["clean", "tensor", "loader", "threads"];
const WIDTH: usize = 256;
const BATCH: usize = 64;
const LOADERS: usize = 4;
const WARMUP: usize = 20;

/// A model that multiplies element by element.
#[derive(Module, Debug)]
struct Scales {
    layers: Vec<Param<Tensor<2>>>,
}

impl Scales {
    fn new(device: &Device) -> Self {
        let layer = |_| Param::from_tensor(Tensor::random([1, WIDTH], Distribution::Normal(0.0, 1.0), device));
        Self { layers: (0..4).map(layer).collect() }
    }

    /// Runs the model. It remembers its output if there is a place for it.
    #[tracing::instrument(skip_all)]
    fn forward(&self, batch: Tensor<2>, memory: Option<&mut Vec<Tensor<2>>>) -> Tensor<2> {
        let output = self.layers.iter().fold(batch, |hidden, layer| gelu(hidden * layer.val()));
        if let Some(memory) = memory {
            memory.push(info_span!("remember").in_scope(|| output.clone().detach() * 0.5));
        }
        output
    }
}

/// A model, its optimizer, and what the model remembers.
struct Training {
    model: Option<Scales>,
    optimizer: ModuleOptimizer,
    memory: Vec<Tensor<2>>,
}

impl Training {
    /// Runs one step, and waits for its loss, as a training that shows it.
    fn step(&mut self, batch: Tensor<2>, leaks: bool) {
        let model = self.model.take().expect("a model");
        let output = model.forward(Tensor::from_inner(batch), leaks.then_some(&mut self.memory));
        let loss = output.powf_scalar(2.0).mean();
        let gradients = info_span!("backward").in_scope(|| GradientsParams::from_grads(loss.backward(), &model));
        self.model = Some(info_span!("optimizer").in_scope(|| self.optimizer.step(1e-3, model, gradients)));
        let _: f32 = loss.into_scalar();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let case = arguments.next().unwrap_or_else(|| "clean".to_owned());
    let steps: usize = arguments.next().map_or(Ok(200), |steps| steps.parse())?;
    if !CASES.contains(&case.as_str()) {
        return Err(format!("{case} is not a case: {}", CASES.join(", ")).into());
    }
    let device = Device::default();
    let mut training = Training {
        model: Some(Scales::new(&device.clone().autodiff())),
        optimizer: AdamWConfig::new().init(),
        memory: Vec::new(),
    };
    // The first steps compile kernels, each of which takes as long as many steps.
    (0..WARMUP).for_each(|_| training.step(load_batch(&device, None), false));

    let (layer, profiler) = Profiler::builder()
        .activities([Activity::Host, Activity::Kernels, Activity::Memory, Activity::Heap])
        .schedule(Schedule::new().wait(20).warmup(1).active(20).repeat(3))
        .build()?;
    tracing_subscriber::registry().with(layer).init();
    let attached = attach(&profiler, &device)?;
    println!("case {case}, {steps} steps, {device:?}: {}", attached.coverage());
    let (batches, loaders) = match case.as_str() {
        "threads" => load_in_own_threads(steps, &device),
        _ => load(steps, &device, case == "loader"),
    };
    for batch in batches {
        training.step(batch, case == "tensor");
        profiler.step();
    }
    device.sync()?;
    drop(attached);
    let report = profiler.finish()?;
    println!("{}", report.gpu());
    for series in report.memory_series() {
        let bytes = |point: Option<&MemoryPoint>| point.map_or(0, |point| point.bytes);
        let (first, last) = (bytes(series.points().first()), bytes(series.points().last()));
        let (count, source) = (series.points().len(), series.source());
        println!("{source}: {count} points, {first} to {last} bytes, peak {}", series.peak());
    }
    for peak in report.memory().peaks() {
        println!("peak of the windows: {} bytes", peak.in_use);
    }
    println!("{}", report.leaks());
    report.idle_pools().iter().for_each(|pool| println!("idle: {pool}"));
    println!("losses: {}", report.losses().total());
    let kept: usize = loaders.into_iter().map(|loader| loader.join().map_or(0, |kept| kept.len())).sum();
    println!("kept: {} tensors", kept + training.memory.len());
    Ok(())
}

/// The batches, and the threads that load them, each with what it has kept.
type Loaded = (Receiver<Tensor<2>>, Vec<JoinHandle<Vec<Tensor<2>>>>);

/// Loads a batch, and keeps what it is made of if there is a place for it.
#[tracing::instrument(name = "load", skip_all)]
fn load_batch(device: &Device, kept: Option<&mut Vec<Tensor<2>>>) -> Tensor<2> {
    let decoded = info_span!("decode").in_scope(|| Tensor::ones([BATCH, WIDTH], device) * 3.0);
    kept.into_iter().for_each(|kept| kept.push(decoded.clone()));
    decoded * 0.5
}

/// Loads batches in a few threads.
fn load(steps: usize, device: &Device, leaks: bool) -> Loaded {
    let (send, batches) = mpsc::sync_channel(LOADERS);
    let spawn = |number: usize| {
        let (send, device) = (send.clone(), device.clone());
        thread::spawn(move || {
            let mut kept = Vec::new();
            for _ in (number..steps).step_by(LOADERS) {
                // The training goes on until the last batch, so that somebody receives it.
                let _ = send.send(load_batch(&device, leaks.then_some(&mut kept)));
            }
            kept
        })
    };
    let loaders = (0..LOADERS).map(spawn).collect();
    (batches, loaders)
}

/// Loads each batch in a thread of its own, one after another.
fn load_in_own_threads(steps: usize, device: &Device) -> Loaded {
    let (send, batches) = mpsc::sync_channel(LOADERS);
    let device = device.clone();
    let loader = thread::spawn(move || {
        for _ in 0..steps {
            let batch = thread::scope(|scope| scope.spawn(|| load_batch(&device, None)).join().expect("a batch"));
            let _ = send.send(batch);
        }
        Vec::new()
    });
    (batches, vec![loader])
}
