//! Traces of models that are trained on the CPU, and a comparison with training without a profiler.

#![cfg(feature = "train")]

mod support;

use burn::{
    module::Module,
    optim::GradientsParams,
    store::ModuleRecord,
    train::{
        Interrupter, Interruption, MetricEarlyStoppingStrategy, StoppingCondition, SupervisedTraining,
        metric::{
            LossMetric,
            store::{Aggregate, Direction, Split},
        },
    },
};
use kernspan::{Schedule, Trace};
use kernspan_burn::{Profiled, backward, data, training, validation};
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, atomic::Ordering},
};
use support::{
    Batches, Loader, Net, adam, batches, count, device, files, learner, loader, outline, plain, profiled, steps,
    supervised,
};

const ITERATION: [&str; 6] = ["data", "iteration", "  train_step", "    forward", "    backward", "  optimizer"];

fn three_of_the_first_six() -> Schedule {
    Schedule::new().wait(2).warmup(1).active(3).repeat(1)
}

fn train_by_hand(loader: Loader) -> Vec<f32> {
    let (mut model, mut optimizer, mut losses) = (Net::new(&device()), Profiled::new(adam()), Vec::new());
    for batch in loader.to_device(&device()).iter() {
        let output = model.forward(batch.unwrap());
        let gradients = GradientsParams::from_grads(backward(&output.loss), &model);
        model = optimizer.step(0.02, model, gradients);
        losses.push(output.loss.into_scalar::<f32>());
    }
    losses
}

#[test]
fn a_loop_by_hand_has_data_forward_backward_and_optimizer_in_each_step() {
    let (trace, report, losses) = profiled(three_of_the_first_six(), || train_by_hand(training(loader(8, batches()))));
    assert!(losses.last() < losses.first(), "the model learns: {losses:?}");
    assert_eq!(steps(&trace), [3, 4, 5]);
    assert_eq!(report.steps().steps().len(), 3);
    for step in steps(&trace) {
        let expected = ["data", "iteration", "  forward", "  backward", "  optimizer"];
        assert_eq!(outline(&trace, step), expected, "step {step}");
    }
    assert!(trace.losses().is_empty());
    assert_eq!(losses, plain(|| train_by_hand(loader(8, batches()))), "it learns the same without");
}

#[test]
fn any_iterator_can_be_the_data() {
    let (trace, ..) = profiled(Schedule::always(), || {
        let batches = data(vec![1, 2, 3]);
        assert_eq!(batches.len(), 3);
        assert_eq!(batches.sum::<i32>(), 6);
    });
    assert_eq!(count(&trace, "data"), 4, "the last finds that there is no more");
}

#[test]
fn an_iteration_ends_with_a_loop_that_is_left() {
    let (trace, report, ()) = profiled(Schedule::always(), || {
        let loader = training(loader(8, batches()));
        for (number, batch) in loader.iter().enumerate() {
            batch.unwrap();
            if number == 2 {
                break;
            }
        }
        tracing::info_span!("after").in_scope(|| ());
    });
    assert_eq!(count(&trace, "iteration"), 3);
    let after = trace.spans().find(|span| span.name() == "after").unwrap();
    assert!(after.parent().is_none());
    assert_eq!(report.steps().steps().len(), 3);
}

/// The outcomes of the same training without and with a profiler, and the trace.
struct Both {
    plain: Outcome,
    profiled: Outcome,
    trace: Arc<Trace>,
}

struct Outcome {
    files: BTreeMap<String, Vec<u8>>,
    weights: Vec<f32>,
    interrupted: Option<Interruption>,
    /// The number of training batches and of validation batches.
    batches: [usize; 2],
}

impl Outcome {
    fn of(directory: &Path, start: &Net, end: &Net, interrupted: Option<Interruption>, made: [&Batches; 2]) -> Self {
        let mut files = files(directory);
        for (name, content) in &mut files {
            if name.starts_with("checkpoint/optim") {
                *content = weights_after_a_step(&directory.join(name), start);
            }
        }
        let batches = made.map(|batches| batches.made.load(Ordering::Relaxed));
        Self { files, weights: end.weights(), interrupted, batches }
    }
}

/// Returns the weights after a step with a recorded optimizer. The tensors of an optimizer's record have no fixed
/// order, so records are compared by their effect.
fn weights_after_a_step(record: &Path, model: &Net) -> Vec<u8> {
    let batch = loader(1, batches()).to_device(&device()).iter().next().unwrap().unwrap();
    let gradients = GradientsParams::from_grads(model.forward(batch).loss.backward(), model);
    let stepped = adam().load(record).unwrap().step(0.1, model.clone(), gradients);
    stepped.weights().into_iter().flat_map(f32::to_le_bytes).collect()
}

impl Both {
    /// Asserts that both outcomes are the same.
    fn assert_the_same(&self) {
        let Self { plain, profiled, .. } = self;
        assert!(
            profiled.files.keys().eq(plain.files.keys()),
            "{:?}, not {:?}",
            profiled.files.keys(),
            plain.files.keys()
        );
        for (name, content) in &plain.files {
            assert!(profiled.files[name] == *content, "{name} is not the same");
        }
        assert_eq!(profiled.weights, plain.weights);
        assert_eq!(profiled.interrupted, plain.interrupted);
        assert_eq!(profiled.batches, plain.batches);
    }
}

/// Runs the same training without and with a profiler.
macro_rules! both {
    ($schedule:expr, $train:expr, $valid:expr, |$training:ident| $set_up:expr) => {{
        // Both start from one model, because checkpoints contain the ids of the parameters.
        let model = Net::new(&device());
        let plain = plain(|| {
            let (directory, train, valid) = (tempfile::tempdir().unwrap(), $train, $valid);
            let directory = directory.path();
            let $training: SupervisedTraining<Net> =
                supervised(directory, loader(6, train.clone()), loader(2, valid.clone()));
            let result = $set_up.launch(learner(model.clone()));
            Outcome::of(directory, &model, &result.model, result.interrupted, [&train, &valid])
        });
        let (trace, _, profiled) = profiled($schedule, || {
            let (directory, train, valid) = (tempfile::tempdir().unwrap(), $train, $valid);
            let directory = directory.path();
            let loaders = (training(loader(6, train.clone())), validation(loader(2, valid.clone())));
            let $training: SupervisedTraining<Profiled<Net>> = supervised(directory, loaders.0, loaders.1);
            let result = $set_up.launch(learner(Profiled::new(model.clone())));
            Outcome::of(directory, &model, &result.model, result.interrupted, [&train, &valid])
        });
        Both { plain, profiled, trace }
    }};
}

#[test]
fn supervised_training_has_a_step_for_each_iteration() {
    let Both { trace, .. } = both!(three_of_the_first_six(), batches(), batches(), |training| training.num_epochs(2));
    assert_eq!(steps(&trace), [3, 4, 5]);
    for step in steps(&trace) {
        assert_eq!(outline(&trace, step), ITERATION, "step {step}");
    }
    assert!(trace.losses().is_empty());
}

#[test]
fn validation_is_a_span_and_no_step() {
    let Both { trace, .. } = both!(Schedule::always(), batches(), batches(), |training| training.num_epochs(2));
    assert_eq!(steps(&trace), (0..12).collect::<Vec<_>>());
    assert_eq!([count(&trace, "validation"), count(&trace, "inference_step")], [2, 4]);
    let validation = ["validation", "  data", "  inference_step", "    forward"];
    let validation = validation.iter().chain(&validation[1..]).chain(&["  data"]);
    let first_of_the_second_epoch: Vec<_> = ["data"].iter().chain(validation).chain(&ITERATION).copied().collect();
    assert_eq!(outline(&trace, 6), first_of_the_second_epoch);
    assert_eq!(outline(&trace, 7), ITERATION);
}

#[test]
fn burn_trains_logs_and_saves_as_without() {
    let both = both!(Schedule::always(), batches(), batches(), |training| training
        .num_epochs(4)
        .with_default_checkpointers()
        .summary());
    both.assert_the_same();
    assert_eq!(both.plain.batches, [24, 8]);
    for name in ["train/epoch-4/Loss.log", "valid/epoch-4/Loss.log", "checkpoint/model-4.bpk", "checkpoint/optim-4.bpk"]
    {
        assert!(both.plain.files.contains_key(name), "{name} is not in {:?}", both.plain.files.keys());
    }
}

#[test]
fn a_checkpoint_of_a_profiled_model_is_one_of_the_model() {
    let model = Net::new(&device());
    let bytes = Profiled::new(model.clone()).into_record().into_bytes().unwrap();
    let mut other = Net::new(&device());
    other.fc1.weight = other.fc1.weight.map(|weight| weight * 2.0);
    assert_ne!(other.weights(), model.weights());
    let loaded = other.load_record(ModuleRecord::from_bytes(bytes).unwrap());
    assert_eq!(loaded.weights(), model.weights());
    assert_eq!(Profiled::new(model.clone()).num_params(), model.num_params());
    assert_eq!(Profiled::new(model.clone()).to_string(), model.to_string());
}

#[test]
fn training_goes_on_from_a_checkpoint_that_was_made_without() {
    let directory = tempfile::tempdir().unwrap();
    let loaders = || (loader(6, batches()), loader(2, batches()));
    let (train, valid) = loaders();
    let first: SupervisedTraining<Net> = supervised(directory.path(), train, valid);
    plain(|| first.num_epochs(2).with_default_checkpointers().launch(learner(Net::new(&device()))));

    let (train, valid) = loaders();
    let second: SupervisedTraining<Net> = supervised(directory.path(), train, valid);
    let second = second.num_epochs(4).with_default_checkpointers().checkpoint(2);
    let plain = plain(|| second.launch(learner(Net::new(&device()))).model.weights());
    let (trace, _, ours) = profiled(Schedule::always(), || {
        let (train, valid) = loaders();
        let second: SupervisedTraining<Profiled<Net>> =
            supervised(directory.path(), training(train), validation(valid));
        let second = second.num_epochs(4).with_default_checkpointers().checkpoint(2);
        second.launch(learner(Profiled::new(Net::new(&device())))).model.weights()
    });
    assert_eq!(ours, plain);
    assert_eq!(count(&trace, "iteration"), 12, "the two epochs that are left");
}

#[test]
fn training_stops_early_where_it_would() {
    // The validation data contradict the training data, so the validation loss gets worse.
    let wrong = || Batches { scale: -1.0, ..batches() };
    let both = both!(Schedule::always(), batches(), wrong(), |training| training
        .num_epochs(9)
        .with_default_checkpointers()
        .early_stopping(MetricEarlyStoppingStrategy::new(
            &LossMetric::new(),
            Aggregate::Mean,
            Direction::Lowest,
            Split::Valid,
            StoppingCondition::NoImprovementSince { n_epochs: 2 },
        )));
    both.assert_the_same();
    let [trained, _] = both.plain.batches;
    assert!(trained > 6 && trained < 54, "it stops after some epochs: {trained} batches");
    assert_eq!(count(&both.trace, "iteration"), trained);
}

#[test]
fn gradients_are_accumulated_as_without() {
    let both = both!(Schedule::always(), batches(), batches(), |training| training.num_epochs(1).grads_accumulation(4));
    both.assert_the_same();
    assert_eq!(steps(&both.trace).len(), 6);
    let updated: Vec<_> =
        (0..6).filter(|step| outline(&both.trace, *step).contains(&"  optimizer".to_owned())).collect();
    assert_eq!(updated, [3, 5], "after four, and after the last");
}

#[test]
fn an_interruption_ends_training_where_it_would() {
    let interrupter = Interrupter::new();
    let stopping = || {
        interrupter.reset();
        let interrupter = interrupter.clone();
        Batches { at: Some((3, Arc::new(move || interrupter.stop(Some("enough"))))), ..batches() }
    };
    let both = both!(Schedule::always(), stopping(), batches(), |training| training
        .num_epochs(2)
        .with_interrupter(interrupter.clone()));
    both.assert_the_same();
    assert_eq!(both.plain.interrupted, Some(Interruption { reason: Some("enough".to_owned()) }));
    assert_eq!(both.plain.batches, [3, 0]);
    assert_eq!(steps(&both.trace), [0, 1, 2]);
    assert_eq!([count(&both.trace, "iteration"), count(&both.trace, "validation")], [3, 0]);
}

#[test]
fn a_step_that_panics_panics_as_without_and_its_spans_end() {
    fn message(launched: std::thread::Result<()>) -> String {
        launched.unwrap_err().downcast_ref::<&str>().map(ToString::to_string).unwrap_or_default()
    }
    let bad = || Batches { bad: Some(3), ..batches() };
    let directory = tempfile::tempdir().unwrap();
    let plain = message(plain(|| {
        catch_unwind(AssertUnwindSafe(|| {
            let training: SupervisedTraining<Net> =
                supervised(directory.path(), loader(6, bad()), loader(2, batches()));
            drop(training.launch(learner(Net::new(&device()))));
        }))
    }));
    let (trace, report, ours) = profiled(Schedule::always(), || {
        let ours = message(catch_unwind(AssertUnwindSafe(|| {
            let loaders = (training(loader(6, bad())), validation(loader(2, batches())));
            let training: SupervisedTraining<Profiled<Net>> = supervised(directory.path(), loaders.0, loaders.1);
            drop(training.launch(learner(Profiled::new(Net::new(&device())))));
        })));
        tracing::info_span!("after").in_scope(|| ());
        ours
    });
    assert_eq!(plain, "a bad batch");
    assert_eq!(ours, plain);
    assert_eq!(outline(&trace, 2), ["data", "iteration", "  train_step"]);
    assert_eq!(outline(&trace, 3), ["after"], "it has no parent");
    assert_eq!(report.steps().steps().len(), 3);
    assert!(trace.losses().is_empty());
}
