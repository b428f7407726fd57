//! FLOPs of backward passes in several kinds of training loops.

use candle_core::{DType, Device, Result, Tensor, Var, backprop::GradStore};
use candle_nn::{AdamW, Optimizer, VarBuilder, VarMap};
use kernspan::{Collected, Profiler, trace::Value};
use kernspan_candle::{Op, Parameters, Profiled, Traced, backward, nn};
use tracing_subscriber::prelude::*;

/// FLOPs of a `layer` on one row.
const LAYER: u64 = 2 * 4 * 4;

fn layer(path: &str, variables: &VarMap) -> nn::Linear {
    nn::linear_no_bias(4, 4, VarBuilder::from_varmap(variables, DType::F32, &Device::Cpu).pp(path)).unwrap()
}

fn row() -> Tensor {
    Tensor::ones((1, 4), DType::F32, &Device::Cpu).unwrap()
}

/// Returns the FLOPs of a program's backward passes, in order.
fn backward_flops(program: impl FnOnce() -> Result<()>) -> Vec<Option<u64>> {
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), program).unwrap();
    profiler.finish().unwrap();
    let trace = collected.only();
    let passes = trace.spans().filter(|span| span.name() == Profiled::BACKWARD);
    passes.map(|span| span.field("op.flops").and_then(Value::as_u64)).collect()
}

#[test]
fn it_is_of_what_the_loss_was_made_of() {
    let variables = VarMap::new();
    let (a, b) = (layer("a", &variables), layer("b", &variables));
    let unrelated = Var::ones(4, DType::F32, &Device::Cpu).unwrap();
    let flops = backward_flops(|| {
        for which in 0..3 {
            let (a, b) = (a.forward(&row())?, b.forward(&row())?);
            let loss = match which {
                0 => a,
                1 => (a + b)?,
                _ => unrelated.as_tensor().sqr()?,
            };
            backward(&loss.sum_all()?)?;
        }
        Ok(())
    });
    assert_eq!(flops, [Some(2 * LAYER), Some(4 * LAYER), None]);
}

#[test]
fn a_graph_may_be_gone_back_through_again() {
    let variables = VarMap::new();
    let (trunk, head) = (layer("trunk", &variables), layer("head", &variables));
    let flops = backward_flops(|| {
        let features = trunk.forward(&row())?;
        backward(&head.forward(&features.detach())?.sum_all()?)?;
        backward(&head.forward(&features)?.sum_all()?)?;
        backward(&features.sum_all()?)?;
        Ok(())
    });
    assert_eq!(flops, [Some(2 * LAYER), Some(4 * LAYER), Some(2 * LAYER)]);
}

#[test]
fn an_op_that_says_what_it_took_stands_for_those_in_it() {
    let variables = VarMap::new();
    let inner = layer("inner", &variables);
    let outer = Op::new("outer").flops(|_, _| 1000);
    let silent = Op::new("silent");
    let flops = backward_flops(|| {
        let x = row();
        backward(&outer.run(&[&x], || inner.forward(&x))?.sum_all()?)?;
        backward(&silent.run(&[&x], || inner.forward(&x))?.sum_all()?)?;
        let enormous = Op::new("enormous").flops(|_, _| u64::MAX);
        backward(&enormous.run(&[&x], || inner.forward(&x))?.sum_all()?)?;
        Ok(())
    });
    assert_eq!(flops, [Some(2000), Some(2 * LAYER), Some(u64::MAX)]);
}

#[test]
fn what_is_handed_through_unchanged_still_took_what_it_took() {
    let variables = VarMap::new();
    let layer = layer("a", &variables);
    let gate = Op::new("gate").flops(|_, _| 5);
    let flops = backward_flops(|| {
        let y = layer.forward(&row())?;
        backward(&gate.run(&[&y], || Ok(y.clone()))?.sum_all()?).map(drop)
    });
    assert_eq!(flops, [Some(2 * (LAYER + 5))]);
}

#[test]
fn runs_on_several_threads_and_in_themselves_all_say_what_they_took() {
    fn deep(op: &Op, depth: u32) -> Result<Tensor> {
        let x = row();
        op.run(&[&x], || if depth == 0 { Ok(x.clone()) } else { deep(op, depth - 1) })
    }
    let flops = |program: &(dyn Fn(&Op) + Sync)| {
        let collected = Collected::new();
        let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
        let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
        let op = Op::new("op").flops(|_, _| 10);
        tracing::dispatcher::with_default(&dispatch, || program(&op));
        profiler.finish().unwrap();
        let trace = collected.only();
        trace.spans().filter_map(|span| span.field("op.flops")?.as_u64()).sum::<u64>()
    };
    assert_eq!(flops(&|op| drop(deep(op, 3).unwrap())), 40);
    let threads = flops(&|op| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    tracing::dispatcher::with_default(&dispatch, || (0..3).for_each(|_| drop(deep(op, 0).unwrap())));
                });
            }
        });
    });
    assert_eq!(threads, 8 * 3 * 10);
}

#[test]
fn weights_that_are_shared_are_counted_once() {
    let vb = VarBuilder::zeros(DType::F32, &Device::Cpu);
    let tied = Traced::at(vb.pp("model"), |vb| {
        let embedding = candle_nn::embedding(10, 4, vb.pp("wte"))?;
        Ok((embedding, vb.pp("wte").get((10, 4), "weight")?))
    });
    assert_eq!(tied.unwrap().parameters(), Some(Parameters { count: 40, bytes: 160 }));
}

/// `Profiled` cannot call the optimizer's own `backward_step`, which runs both passes in one call.
#[test]
fn only_the_step_of_the_optimizer_inside_is_called() {
    struct Clipping(AdamW, u32);
    impl Optimizer for Clipping {
        type Config = candle_nn::ParamsAdamW;
        fn new(variables: Vec<Var>, config: Self::Config) -> Result<Self> {
            Ok(Self(AdamW::new(variables, config)?, 0))
        }
        fn step(&mut self, gradients: &GradStore) -> Result<()> {
            self.1 += 1;
            self.0.step(gradients)
        }
        fn learning_rate(&self) -> f64 {
            self.0.learning_rate()
        }
        fn set_learning_rate(&mut self, rate: f64) {
            self.0.set_learning_rate(rate);
        }
        fn backward_step(&mut self, _: &Tensor) -> Result<()> {
            unreachable!("Profiled splits it")
        }
    }
    let variables = VarMap::new();
    let model = layer("a", &variables);
    let mut optimizer = Profiled::new(Clipping::new(variables.all_vars(), Default::default()).unwrap());
    // With a subscriber, as in the other tests: a thread without one that is the first to make a span can turn its
    // callsite off for all, just after another thread's subscriber has turned it on.
    let flops = backward_flops(|| optimizer.backward_step(&model.forward(&row())?.sum_all()?));
    assert_eq!((optimizer.1, flops), (1, vec![Some(2 * LAYER)]));
}
