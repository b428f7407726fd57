//! The trace of a model that is trained on the CPU.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{AdamW, Conv2dConfig, Module, Optimizer, VarBuilder, VarMap, loss};
use kernspan::{
    Collected, Profiler, Report, Schedule, Trace,
    trace::{Span, Value},
};
use kernspan_candle::{Profiled, Traced, data, nn};
use std::sync::Arc;
use tracing_subscriber::prelude::*;

/// A convolution, a linear layer, and a block of two more.
struct Model {
    conv: nn::Conv2d,
    block: Traced<Block>,
    head: nn::Linear,
}

struct Block {
    up: nn::Linear,
    down: nn::Linear,
}

impl Model {
    fn new(vb: VarBuilder<'_>) -> Result<Self> {
        Ok(Self {
            conv: nn::conv2d(1, 4, 3, Conv2dConfig { padding: 1, ..Conv2dConfig::default() }, vb.pp("conv"))?,
            block: Traced::at(vb.pp("blocks").pp(0), Block::new)?,
            head: nn::linear_no_bias(32, 10, vb.pp("head"))?,
        })
    }
}

impl Block {
    fn new(vb: VarBuilder<'_>) -> Result<Self> {
        Ok(Self { up: nn::linear(4 * 8 * 8, 64, vb.pp("up"))?, down: nn::linear(64, 32, vb.pp("down"))? })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.down.forward(&self.up.forward(x)?.relu()?)
    }
}

impl Module for Model {
    #[tracing::instrument(name = "forward", skip_all)]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.conv.forward(x)?.relu()?.flatten_from(1)?;
        self.head.forward(&self.block.forward(&x)?)
    }
}

/// Trains for `steps` steps, of which the schedule records some; with `evaluate`, runs another forward pass in each
/// step.
fn train(steps: usize, schedule: Schedule, evaluate: bool) -> (Arc<Trace>, Report) {
    let collected = Collected::new();
    let builder = Profiler::builder().schedule(schedule).step_on(Profiled::OPTIMIZER);
    let (layer, profiler) = builder.export(collected.clone()).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        train_model(steps, evaluate).unwrap();
    });
    let report = profiler.finish().unwrap();
    (collected.only(), report)
}

fn train_model(steps: usize, evaluate: bool) -> Result<()> {
    let variables = VarMap::new();
    let model = Model::new(VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu))?;
    let mut optimizer = Profiled::new(AdamW::new_lr(variables.all_vars(), 1e-3)?);
    let labels = Tensor::zeros(16, DType::U32, &Device::Cpu)?;
    let batches = (0..steps).map(|_| Tensor::randn(0_f32, 1.0, (16, 1, 8, 8), &Device::Cpu));
    let mut losses = Vec::new();
    for batch in data(batches) {
        let batch = batch?;
        if evaluate {
            model.forward(&batch)?;
        }
        let loss = loss::cross_entropy(&model.forward(&batch)?, &labels)?;
        optimizer.backward_step(&loss)?;
        losses.push(loss.to_scalar::<f32>()?);
    }
    assert!(losses.last() < losses.first(), "the model learns: {losses:?}");
    Ok(())
}

const CONV: u64 = 16 * 4 * 8 * 8 * (2 * 9 + 1);
const UP: u64 = 16 * 64 * (2 * 256 + 1);
const DOWN: u64 = 16 * 32 * (2 * 64 + 1);
const HEAD: u64 = 16 * 10 * 2 * 32;

fn schedule() -> Schedule {
    Schedule::new().wait(2).warmup(1).active(3).repeat(1)
}

fn text(span: Span<'_>, field: &str) -> String {
    span.field(field).map_or_else(String::new, ToString::to_string)
}

#[test]
fn every_step_has_its_data_forward_backward_and_optimizer() {
    let (trace, report) = train(8, schedule(), false);
    assert_eq!(report.steps().steps().len(), 3);
    for step in trace.steps().iter().filter(|step| !step.cut().any()) {
        let of_step = |span: &Span<'_>| span.step().is_some_and(|its| its.number() == step.number());
        let outer: Vec<_> = trace.spans().filter(of_step).filter(|span| span.parent().is_none()).collect();
        let names: Vec<_> = outer.iter().map(|span| span.name()).collect();
        assert_eq!(names, ["data", "forward", "backward", "optimizer"], "step {}", step.number());
    }
}

#[test]
fn modules_are_nested_as_they_are_called() {
    let (trace, _) = train(8, schedule(), false);
    let forward = trace.spans().find(|span| span.name() == "forward").unwrap();
    let inside = |outer: Span<'_>| -> Vec<String> {
        let children = trace.spans().filter(|span| span.parent().is_some_and(|parent| parent.id() == outer.id()));
        children.map(|span| format!("{} = {}", span.name(), text(span, "op.module"))).collect()
    };
    assert_eq!(inside(forward), ["conv = conv", "blocks.0 = blocks.0", "head = head"]);
    let block = trace.spans().find(|span| span.name() == "blocks.0").unwrap();
    assert_eq!(inside(block), ["up = blocks.0.up", "down = blocks.0.down"]);
}

#[test]
fn a_span_says_what_went_in_and_came_out_and_what_it_took() {
    let (trace, report) = train(8, schedule(), false);
    let up: Vec<_> = trace.spans().filter(|span| span.name() == "up").collect();
    assert_eq!(up.len(), 3);
    for span in up {
        let facts = ["op.shape.input", "op.dtype.input", "op.shape.output", "op.dtype.output", "op.device", "op.gemm"];
        assert_eq!(facts.map(|fact| text(span, fact)), ["[16, 256]", "f32", "[16, 64]", "f32", "cpu", "16x64x256"]);
        assert_eq!(span.field("op.flops"), Some(&Value::U64(UP)));
        let parameters = 256 * 64 + 64;
        assert_eq!(span.field("op.parameters"), Some(&Value::U64(parameters)));
        assert_eq!(span.field("op.parameter_bytes"), Some(&Value::U64(4 * parameters)));
        assert_eq!(span.field("op.bytes"), Some(&Value::U64(4 * (parameters + 16 * 256 + 16 * 64))));
    }
    let block = trace.spans().find(|span| span.name() == "blocks.0").unwrap();
    assert_eq!(block.field("op.flops"), None, "the modules inside have FLOPs");
    assert_eq!(block.field("op.parameters"), Some(&Value::U64(256 * 64 + 64 + 64 * 32 + 32)));
    let rows = report.averages().rows();
    let flops = |name: &str| rows.iter().find(|row| row.name == name).unwrap().flops;
    assert_eq!(["conv", "up", "down", "head"].map(flops), [CONV, UP, DOWN, HEAD].map(|flops| 3 * flops));
}

#[test]
fn a_backward_pass_takes_twice_the_forward_pass_it_is_of() {
    for evaluate in [false, true] {
        let (trace, _) = train(8, schedule(), evaluate);
        let passes: Vec<_> = trace.spans().filter(|span| span.name() == "backward").collect();
        assert_eq!(passes.len(), 3);
        for pass in passes {
            assert_eq!(pass.field("op.flops"), Some(&Value::U64(2 * (CONV + UP + DOWN + HEAD))), "{evaluate}");
            assert_eq!(text(pass, "op.compute"), "f32");
        }
    }
}
