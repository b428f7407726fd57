//! Profiles a small classifier that trains on a GPU with its own CUDA kernels: `cargo run --release -p cudarc-example`.
//!
//! Only `main`, the spans and `step()` are for the profiler.

use cudarc::{
    driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg},
    nvrtc::compile_ptx,
};
use kernspan::{Activity, Chrome, Html, Perfetto, Profiler, Schedule, Stacks, TensorBoard};
use std::{collections::HashMap, error::Error, sync::Arc};
use tracing::{info_span, instrument};
use tracing_subscriber::prelude::*;

const FEATURES: usize = 64;
const HIDDEN: usize = 256;
const CLASSES: usize = 8;
const BATCH: usize = 512;

fn main() -> Result<(), Box<dyn Error>> {
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::new().wait(20).warmup(2).active(5).repeat(2))
        .activities([Activity::Host, Activity::Kernels, Activity::Copies, Activity::Memory])
        .export(Chrome::to_dir("runs/cudarc"))
        .export(Perfetto::to_dir("runs/cudarc"))
        .export(Stacks::to_dir("runs/cudarc"))
        .export(Html::to_dir("runs/cudarc"))
        .export(TensorBoard::to_dir("runs/cudarc"))
        .build()?;
    tracing_subscriber::registry().with(layer).init();
    if !profiler.gpu().is_available() {
        eprintln!("this example needs a GPU. {}", profiler.gpu());
        std::process::exit(1);
    }

    let mut model = Model::new()?;
    for step in 0..80 {
        let loss = train_step(&mut model, step)?;
        tracing::info!(counter.loss = loss);
        if step % 20 == 0 || step == 79 {
            println!("step {step}: loss {loss:.4}");
        }
        profiler.step();
    }
    profiler.finish_and_print()?;
    Ok(())
}

/// Launches a kernel with one thread for each element.
macro_rules! launch {
    ($model:expr, $kernel:literal, $elements:expr, $($argument:expr),+) => {
        launch!($model.stream, $model.kernels[$kernel]; $elements, $($argument),+)
    };
    ($stream:expr, $kernel:expr; $elements:expr, $($argument:expr),+) => {{
        let mut launch = $stream.launch_builder(&$kernel);
        $(launch.arg($argument);)+
        // SAFETY: the arguments have the types of the kernel's parameters, and it stays inside their bounds.
        #[allow(unsafe_code, reason = "the compiler cannot check a kernel")]
        unsafe { launch.launch(LaunchConfig::for_num_elems($elements as u32)) }?;
    }};
}

struct Model {
    stream: Arc<CudaStream>,
    kernels: HashMap<&'static str, CudaFunction>,
    hidden: Linear,
    output: Linear,
}

struct Linear {
    weights: CudaSlice<f32>,
    bias: CudaSlice<f32>,
    inputs: usize,
    outputs: usize,
}

#[instrument(skip_all)]
fn train_step(model: &mut Model, step: usize) -> Result<f32, DriverError> {
    let (x, labels) = model.load(step)?;
    let (hidden, mut scores) = model.forward(&x)?;
    let loss = model.loss(&mut scores, &labels)?;
    model.backward(&x, &hidden, &scores)?;
    info_span!("read_loss").in_scope(|| Ok(model.stream.clone_dtoh(&loss)?[0]))
}

impl Model {
    fn new() -> Result<Self, Box<dyn Error>> {
        let context = CudaContext::new(0)?;
        let module = context.load_module(compile_ptx(include_str!("kernels.cu"))?)?;
        let names = ["linear", "relu", "cross_entropy", "linear_backward_x", "sgd"];
        let kernels = names.map(|name| module.load_function(name).map(|kernel| (name, kernel)));
        let stream = context.new_stream()?;
        Ok(Self {
            kernels: kernels.into_iter().collect::<Result<_, _>>()?,
            hidden: Linear::new(&stream, FEATURES, HIDDEN)?,
            output: Linear::new(&stream, HIDDEN, CLASSES)?,
            stream,
        })
    }

    /// Returns random points around a centre for each class, and the classes.
    #[instrument(skip_all)]
    fn load(&self, step: usize) -> Result<(CudaSlice<f32>, CudaSlice<i32>), DriverError> {
        let mut random = Random(step as u64 + 1);
        let labels: Vec<_> = (0..BATCH).map(|row| (row % CLASSES) as i32).collect();
        let x: Vec<_> = (0..BATCH * FEATURES)
            .map(|at| {
                let centre = (labels[at / FEATURES] as usize * 31 + at % FEATURES * 17) % 13;
                random.next() + centre as f32 / 13.0
            })
            .collect();
        Ok((self.stream.clone_htod(&x)?, self.stream.clone_htod(&labels)?))
    }

    #[instrument(skip_all)]
    fn forward(&self, x: &CudaSlice<f32>) -> Result<(CudaSlice<f32>, CudaSlice<f32>), DriverError> {
        let mut hidden = self.linear(&self.hidden, x)?;
        let length = hidden.len() as i32;
        launch!(self, "relu", length, &mut hidden, &length);
        let scores = self.linear(&self.output, &hidden)?;
        Ok((hidden, scores))
    }

    #[instrument(skip_all)]
    fn linear(&self, layer: &Linear, x: &CudaSlice<f32>) -> Result<CudaSlice<f32>, DriverError> {
        let Linear { weights, bias, inputs, outputs } = layer;
        let mut y = self.stream.alloc_zeros(BATCH * outputs)?;
        let (n, i, o) = (BATCH as i32, *inputs as i32, *outputs as i32);
        launch!(self, "linear", BATCH * outputs, &mut y, x, weights, bias, &n, &i, &o);
        Ok(y)
    }

    #[instrument(skip_all)]
    fn loss(&self, scores: &mut CudaSlice<f32>, labels: &CudaSlice<i32>) -> Result<CudaSlice<f32>, DriverError> {
        let mut loss = self.stream.alloc_zeros(1)?;
        let (n, classes) = (BATCH as i32, CLASSES as i32);
        launch!(self, "cross_entropy", n, scores, labels, &mut loss, &n, &classes);
        Ok(loss)
    }

    #[instrument(skip_all)]
    fn backward(
        &mut self,
        x: &CudaSlice<f32>,
        hidden: &CudaSlice<f32>,
        gradient: &CudaSlice<f32>,
    ) -> Result<(), DriverError> {
        let mut inner = self.stream.alloc_zeros::<f32>(BATCH * HIDDEN)?;
        let (n, i, o) = (BATCH as i32, HIDDEN as i32, CLASSES as i32);
        let weights = &self.output.weights;
        launch!(self, "linear_backward_x", BATCH * HIDDEN, &mut inner, gradient, weights, hidden, &n, &i, &o);
        self.update(hidden, gradient, |model| &mut model.output)?;
        self.update(x, &inner, |model| &mut model.hidden)
    }

    #[instrument(skip_all)]
    fn update(
        &mut self,
        x: &CudaSlice<f32>,
        gradient: &CudaSlice<f32>,
        layer: impl Fn(&mut Self) -> &mut Linear,
    ) -> Result<(), DriverError> {
        const RATE: f32 = 0.3;
        let (stream, kernel) = (Arc::clone(&self.stream), self.kernels["sgd"].clone());
        let Linear { weights, bias, inputs, outputs } = layer(self);
        let (n, i, o) = (BATCH as i32, *inputs as i32, *outputs as i32);
        let elements = *inputs * *outputs;
        launch!(stream, kernel; elements, weights, bias, x, gradient, &RATE, &n, &i, &o);
        Ok(())
    }
}

impl Linear {
    fn new(stream: &Arc<CudaStream>, inputs: usize, outputs: usize) -> Result<Self, DriverError> {
        let mut random = Random(inputs as u64);
        let scale = (2.0 / inputs as f32).sqrt();
        let weights: Vec<_> = (0..inputs * outputs).map(|_| random.next() * scale).collect();
        let (weights, bias) = (stream.clone_htod(&weights)?, stream.alloc_zeros(outputs)?);
        Ok(Self { weights, bias, inputs, outputs })
    }
}

/// A generator of pseudo-random numbers between -1 and 1, the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}
