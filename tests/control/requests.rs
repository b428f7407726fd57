//! Tests of what a program answers, and of what it then does.

use crate::{
    support::eventually,
    training::{self, files_in, train},
};
use kernspan::control::protocol::{Record, RecordState};
use std::{path::Path, time::Duration};

/// Returns the numbers of the steps that a Chrome trace has, by the fields of their spans.
fn recorded_steps(files: &[impl AsRef<Path>]) -> Vec<u64> {
    let trace = files.iter().map(AsRef::as_ref).find(|file| file.to_string_lossy().contains(".json")).unwrap();
    let traces = kernspan::read(trace).unwrap();
    let spans = traces[0].spans().filter(|span| span.name() == "train_step");
    spans.map(|span| span.field("step").unwrap().to_string().parse().unwrap()).collect()
}

#[test]
fn a_program_says_how_it_is() {
    let training = training::start("requests::a_program_says_how_it_is", || {
        training::train_with(|builder| builder.rank(3, 8));
    });
    training.wait_for_steps();
    let status = eventually("a rate", || Some(training.status()).filter(|status| status.steps_per_second.is_some()));
    assert_eq!((status.rank, status.world_size, status.phase.as_str()), (3, 8, "wait"));
    assert_eq!((status.recording, status.windows, status.requests, status.ended), (false, 0, 0, false));
    assert_eq!((status.schedule.as_str(), status.version.as_str()), ("by hand", env!("CARGO_PKG_VERSION")));
    assert!(status.has_steps && status.step > 0 && !status.program.is_empty() && !status.host.is_empty());
    let name = format!("{}-rank3-0.sock", status.pid);
    assert_eq!(training.socket().file_name().unwrap().to_str(), Some(&*name));
    training.stop();
}

#[test]
fn a_request_takes_effect_at_the_next_step() {
    let training = training::start("requests::a_request_takes_effect_at_the_next_step", || {
        // Steps end only when they are told to.
        let profiler = training::profiler(|builder| builder);
        for step in 0..40_u64 {
            eventually("the go", || training::runtime().join(step.to_string()).exists().then_some(()));
            tracing::info_span!("train_step", step).in_scope(|| ());
            profiler.step();
        }
        profiler.finish().unwrap();
    });
    let go = |step: u64| std::fs::write(training.folder.path().join(step.to_string()), "").unwrap();
    (0..7).for_each(go);
    let mut client = training.client();
    eventually("step 7", || (client.status().unwrap().step == 7).then_some(()));
    let out = training.folder.path().join("out");
    let record = Record { out: Some(out.clone()), ..Record::steps(3) };
    let mut states = Vec::new();
    let recorded = client.record(&record, |progress| {
        // Nothing happens until the step ends, and then at once.
        if states.is_empty() {
            assert_eq!((progress.state, progress.step), (RecordState::Waiting, 7));
            (7..11).for_each(go);
        }
        states.push(progress.state);
    });
    let recorded = recorded.unwrap();
    assert_eq!((recorded.first_step, recorded.steps), (Some(8), 3));
    assert_eq!(recorded_steps(&recorded.files), [8, 9, 10]);
    assert_eq!(files_in(&out).len(), 3);
    assert!(recorded.files.iter().all(|file| file.starts_with(&out)), "{recorded:?}");
    assert_eq!((client.status().unwrap().step, client.status().unwrap().windows), (11, 1));
    (11..40).for_each(go);
    training.stop();
}

#[test]
fn those_who_watch_see_steps_counters_spans_and_the_last_window() {
    let training = training::start("requests::those_who_watch_see_steps_counters_spans_and_the_last_window", train);
    training
        .client()
        .record(&Record { out: Some(training.folder.path().join("out")), ..Record::steps(2) }, |_| ())
        .unwrap();
    let mut last_step = None;
    let mut states = training.client().watch(Duration::from_millis(100)).unwrap();
    let live = eventually("everything", || {
        let live = states.next().unwrap().unwrap();
        // Each step is sent once.
        assert!(live.steps.iter().all(|step| last_step.is_none_or(|last| step.number > last)), "{live:?}");
        last_step = live.steps.last().map(|step| step.number).or(last_step);
        (!live.spans.is_empty() && live.samples > 1 && !live.steps.is_empty()).then_some(live)
    });
    assert!(live.counters["loss"].0 > 0.0 && live.memory["memory.process"] > 0, "{live:?}");
    assert!(live.spans.iter().any(|span| span.name == "forward" && span.self_threads > 0.0), "{live:?}");
    let window = live.last_window.unwrap();
    assert_eq!((window.window, window.steps), (0, 2));
    assert!(window.spans.iter().any(|span| span.name == "forward" && span.count == 2), "{window:?}");
    training.stop();
    assert!(states.all(|live| live.is_ok()), "the end of the program ends the states");
}
