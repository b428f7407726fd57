//! The layer next to Burn's logger, which installs a subscriber of its own when a training starts and there is none.

#![cfg(feature = "train")]

mod support;

use burn::train::{FileApplicationLoggerInstaller, SupervisedTraining};
use kernspan::{Collected, Profiler};
use kernspan_burn::{Profiled, training, validation};
use support::{Net, batches, count, device, learner, loader, steps, supervised};
use tracing_subscriber::prelude::*;

#[test]
fn burns_logger_does_not_take_the_place_of_the_layer() {
    let collected = Collected::new();
    let builder = Profiler::builder().step_on(Profiled::ITERATION).export(collected.clone());
    let (layer, profiler) = builder.build().unwrap();
    tracing_subscriber::registry().with(layer).init();

    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("experiment.log");
    let launch = |logger: Option<FileApplicationLoggerInstaller>| {
        let loaders = (training(loader(3, batches())), validation(loader(1, batches())));
        let training: SupervisedTraining<Profiled<Net>> = supervised(directory.path(), loaders.0, loaders.1);
        let training = training.with_application_logger(logger.map(|logger| Box::new(logger) as Box<_>));
        assert!(training.launch(learner(Profiled::new(Net::new(&device())))).error.is_none());
    };
    launch(None);
    assert!(!log.exists());
    // By default Burn finds the subscriber, logs a message, and continues without its own.
    launch(Some(FileApplicationLoggerInstaller::new(&log)));
    tracing::info_span!("after").in_scope(|| ());

    profiler.finish().unwrap();
    let trace = collected.only();
    assert_eq!(steps(&trace).len(), 6);
    assert_eq!([count(&trace, "train_step"), count(&trace, "validation"), count(&trace, "after")], [6, 2, 1]);
    let written = std::fs::read_to_string(&log).unwrap_or_default();
    assert_eq!(written, "", "nothing is written to Burn's own log");
    assert!(tracing_subscriber::registry().try_init().is_err());
}
