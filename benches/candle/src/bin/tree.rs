//! Checks where the layers of a model lie in the tree of spans, with the kernels that they launch.
//!
//! `tree [STEPS]`: trains a perceptron of eight named layers in four blocks and records every other window of two
//! steps. Each layer has to lie in its block in `forward` in `train_step`, on the host and in the stacks of GPU time,
//! once a step and with at least one kernel.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{AdamW, Optimizer, VarBuilder, VarMap};
use kernspan::{
    Collected, Profiler, Schedule, Stacks, Trace,
    trace::{Span, Work},
};
use kernspan_candle::{Profiled, nn};
use std::{collections::BTreeMap, fs};
use tracing::instrument;
use tracing_subscriber::prelude::*;

const LAYERS: usize = 8;
const WIDTH: usize = 512;

struct Mlp {
    layers: Vec<nn::Linear>,
}

impl Mlp {
    fn new(vb: &VarBuilder<'_>) -> Result<Self> {
        let layer = |index: usize| nn::linear(WIDTH, WIDTH, vb.pp(format!("l{index}")));
        Ok(Self { layers: (0..LAYERS).map(layer).collect::<Result<_>>()? })
    }

    #[instrument(skip_all)]
    fn forward(&self, mut x: Tensor) -> Result<Tensor> {
        for layers in self.layers.chunks(2) {
            x = Self::block(layers, &x)?;
        }
        Ok(x)
    }

    #[instrument(skip_all)]
    fn block(layers: &[nn::Linear], x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for layer in layers {
            x = layer.forward(&x)?.relu()?;
        }
        Ok(x)
    }
}

#[instrument(skip_all)]
fn train_step(model: &Mlp, optimizer: &mut Profiled<AdamW>, batch: Tensor) -> Result<()> {
    let loss = model.forward(batch)?.sqr()?.mean_all()?;
    optimizer.backward_step(&loss)
}

/// Returns the names of a span and of those that it works for, from the outside in.
fn path(span: Span<'_>) -> String {
    let mut names: Vec<_> = std::iter::successors(Some(span), |span| span.caller()).map(Span::name).collect();
    names.reverse();
    names.join(";")
}

/// Counts the spans of each path, and the kernels that they launched.
fn count(traces: &[std::sync::Arc<Trace>]) -> (BTreeMap<String, u64>, BTreeMap<String, u64>, u64) {
    let (mut spans, mut kernels, mut steps) = (BTreeMap::new(), BTreeMap::new(), 0);
    for trace in traces {
        steps += trace.steps().len() as u64;
        trace.spans().for_each(|span| *spans.entry(path(span)).or_default() += 1);
        let launched = trace.work().filter_map(Work::span);
        launched.for_each(|span| *kernels.entry(path(span)).or_default() += 1);
    }
    (spans, kernels, steps)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let turns: usize = std::env::args().nth(1).map_or(Ok(40), |text| text.parse())?;
    let folder = std::env::temp_dir().join(format!("kernspan-tree-{}", std::process::id()));
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::new().wait(2).active(2))
        .export(collected.clone())
        .export(Stacks::to_dir(&folder))
        .build()?;
    tracing_subscriber::registry().with(layer).init();

    let device = Device::cuda_if_available(0)?;
    let variables = VarMap::new();
    let model = Mlp::new(&VarBuilder::from_varmap(&variables, DType::F32, &device))?;
    let mut optimizer = Profiled::new(AdamW::new_lr(variables.all_vars(), 1e-3)?);
    for _ in 0..turns {
        train_step(&model, &mut optimizer, Tensor::randn(0_f32, 1.0, (256, WIDTH), &device)?)?;
        profiler.step();
    }
    let report = profiler.finish()?;
    let (spans, kernels, steps) = count(&collected.traces());
    let mut stacks = String::new();
    for file in report.files().iter().filter(|file| file.to_string_lossy().ends_with(".gpu.folded")) {
        stacks += &fs::read_to_string(file)?;
    }
    fs::remove_dir_all(&folder)?;

    println!("{steps} steps in {} windows, {}, {}", report.windows(), report.gpu(), report.completeness());
    let mut wrong = 0;
    for index in 0..LAYERS {
        let path = format!("train_step;forward;block;l{index}");
        let (found, launched) = (spans.get(&path).copied(), kernels.get(&path).copied().unwrap_or(0));
        let in_stacks = stacks.contains(&format!("{path};"));
        println!("{path}: {found:?} spans, {launched} kernels, in the stacks of GPU time: {in_stacks}");
        wrong += u32::from(found != Some(steps) || device.is_cuda() && (launched < steps || !in_stacks));
    }
    let elsewhere: Vec<_> = spans
        .keys()
        .filter(|path| path.contains(";l") || path.starts_with('l'))
        .filter(|path| !path.starts_with("train_step;forward;block;l"))
        .collect();
    println!("layers elsewhere: {elsewhere:?}; unattributed: {}", report.attributions().unattributed);
    if wrong == 0 && elsewhere.is_empty() { Ok(()) } else { Err(format!("{wrong} layers are wrong").into()) }
}
