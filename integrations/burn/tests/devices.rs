//! Training on several devices, which are all the CPU here. The strategy `ddp` is not available on the CPU.

#![cfg(feature = "train")]

mod support;

use burn::train::{ExecutionStrategy, MultiDeviceOptim, SupervisedTraining};
use kernspan::{Collected, Profiler, Schedule, Trace, trace::Span};
use kernspan_burn::{Profiled, training, validation};
use std::collections::HashSet;
use support::{Net, batches, count, device, learner, loader, supervised};
use tracing_subscriber::prelude::*;

/// Trains for one epoch on two devices, each with four batches, and validates with two.
fn train(strategy: ExecutionStrategy) {
    let directory = tempfile::tempdir().unwrap();
    let loaders = (training(loader(8, batches())), validation(loader(2, batches())));
    let training: SupervisedTraining<Profiled<Net>> = supervised(directory.path(), loaders.0, loaders.1);
    let result = training.with_training_strategy(strategy.into()).launch(learner(Profiled::new(Net::new(&device()))));
    assert!(result.error.is_none(), "{:?}", result.error);
}

/// Returns the number of threads that have spans of this name.
fn threads(trace: &Trace, name: &str) -> usize {
    trace.spans().filter(|span| span.name() == name).map(Span::track_id).collect::<HashSet<_>>().len()
}

#[test]
fn there_is_one_iteration_per_round_with_any_number_of_devices() {
    let collected = Collected::new();
    let builder = Profiler::builder().schedule(Schedule::manual()).step_on(Profiled::ITERATION);
    let (layer, profiler) = builder.export(collected.clone()).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    let devices = || vec![device(), device()];
    let on_main = ExecutionStrategy::multi(devices(), MultiDeviceOptim::OptimMainDevice);
    let sharded = ExecutionStrategy::multi(devices(), MultiDeviceOptim::OptimSharded);
    let mut taken = Vec::new();
    for strategy in [on_main, sharded] {
        let before = profiler.current_step();
        let recording = profiler.record();
        train(strategy);
        drop(recording);
        taken.push(profiler.current_step() - before);
    }
    profiler.finish().unwrap();
    assert_eq!(taken, [4, 4]);
    let traces = collected.traces();
    assert_eq!(traces.len(), 2);
    for trace in traces {
        let names = ["iteration", "train_step", "optimizer", "validation", "inference_step"];
        let counts = names.map(|name| count(&trace, name));
        assert_eq!(counts, [4, 8, 4, 1, 2]);
        let threads = ["iteration", "train_step", "optimizer"].map(|name| threads(&trace, name));
        assert_eq!(threads, [1, 2, 1], "training steps are on threads of the devices");
    }
}
