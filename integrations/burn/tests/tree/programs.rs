//! Trainings of ten steps, with spans as users and frameworks make them.

use candle_core::{DType, Tensor};
use candle_nn::{AdamW, Optimizer as _, VarBuilder, VarMap};
use kernspan::Profiler;
use kernspan_candle::nn;
use std::hint::black_box;
use tracing::{Span, info_span, instrument};

const STEPS: u64 = 10;

/// Takes some time, so that no span takes none.
fn compute() {
    black_box((0..1_000).map(black_box).sum::<u64>());
}

/// Spans that are made once: without a parent, as a library makes those of a model, and in another span, which has
/// closed when they are entered.
pub fn plain(profiler: &Profiler) {
    let kept = info_span!(parent: None, "kept", layer = 1);
    let elsewhere = info_span!("load").in_scope(|| info_span!("made elsewhere"));
    for _ in 0..STEPS {
        train_step(&kept, &elsewhere);
        profiler.step();
    }
}

#[instrument(skip_all)]
fn train_step(kept: &Span, elsewhere: &Span) {
    compute();
    forward(kept, elsewhere);
}

#[instrument(skip_all)]
fn forward(kept: &Span, elsewhere: &Span) {
    compute();
    block(kept, elsewhere);
}

#[instrument(skip_all)]
fn block(kept: &Span, elsewhere: &Span) {
    compute();
    info_span!("gelu").in_scope(compute);
    elsewhere.in_scope(compute);
    kept.in_scope(|| {
        compute();
        info_span!("inner").in_scope(compute);
    });
}

/// A model with named layers in instrumented functions.
struct Mlp {
    l0: nn::Linear,
    l1: nn::Linear,
    head: nn::Linear,
}

impl Mlp {
    fn new(vb: VarBuilder<'_>) -> candle_core::Result<Self> {
        let l0 = nn::linear(8, 16, vb.pp("l0"))?;
        Ok(Self { l0, l1: nn::linear(16, 8, vb.pp("l1"))?, head: nn::linear(8, 2, vb.pp("head"))? })
    }

    #[instrument(skip_all)]
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        self.head.forward(&self.block(x)?)
    }

    #[instrument(skip_all)]
    fn block(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let x = self.l0.forward(x)?;
        let x = info_span!("gelu").in_scope(|| x.gelu())?;
        self.l1.forward(&x)
    }
}

pub fn candle(profiler: &Profiler) {
    #[instrument(skip_all)]
    fn train_step(
        model: &Mlp,
        optimizer: &mut kernspan_candle::Profiled<AdamW>,
        batch: &Tensor,
    ) -> candle_core::Result<()> {
        let loss = model.forward(batch)?.sqr()?.mean_all()?;
        optimizer.backward_step(&loss)
    }
    let device = candle_core::Device::Cpu;
    let variables = VarMap::new();
    let model = Mlp::new(VarBuilder::from_varmap(&variables, DType::F32, &device)).unwrap();
    let optimizer = AdamW::new_lr(variables.all_vars(), 1e-3).unwrap();
    let mut optimizer = kernspan_candle::Profiled::new(optimizer);
    let batches = (0..STEPS).map(|_| Tensor::randn(0_f32, 1.0, (4, 8), &device).unwrap());
    for batch in kernspan_candle::data(batches) {
        train_step(&model, &mut optimizer, &batch).unwrap();
        profiler.step();
    }
}

/// A model of Burn whose layers the user puts into spans.
#[derive(burn::module::Module, Debug)]
struct Net {
    l0: burn::nn::Linear,
}

impl Net {
    #[instrument(skip_all)]
    fn forward(&self, x: burn::tensor::Tensor<2>) -> burn::tensor::Tensor<2> {
        self.block(x)
    }

    #[instrument(skip_all)]
    fn block(&self, x: burn::tensor::Tensor<2>) -> burn::tensor::Tensor<2> {
        info_span!("l0").in_scope(|| self.l0.forward(x))
    }
}

pub fn burn(profiler: &Profiler) {
    use burn::{
        nn::LinearConfig,
        optim::{AdamConfig, GradientsParams, ModuleOptimizer},
        tensor::{Device, Tensor},
    };

    #[instrument(skip_all)]
    fn train_step(model: Net, optimizer: &mut kernspan_burn::Profiled<ModuleOptimizer>, batch: Tensor<2>) -> Net {
        let loss = model.forward(batch).powi_scalar(2).mean();
        let gradients = GradientsParams::from_grads(kernspan_burn::backward(&loss), &model);
        optimizer.step(1e-3, model, gradients)
    }
    let device = Device::flex().autodiff();
    let mut model = Net { l0: LinearConfig::new(8, 2).init(&device) };
    let mut optimizer = kernspan_burn::Profiled::new(AdamConfig::new().init());
    let batches = (0..STEPS).map(|_| Tensor::<2>::ones([4, 8], &device));
    for batch in kernspan_burn::data(batches) {
        model = train_step(model, &mut optimizer, batch);
        profiler.step();
    }
}
