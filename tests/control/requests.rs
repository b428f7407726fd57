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
fn two_ranks_record_the_same_steps_without_communicating() {
    let name = "requests::two_ranks_record_the_same_steps_without_communicating";
    let ranks = ["0", "1"].map(|rank| {
        let variables = [("RANK", rank.as_ref()), ("WORLD_SIZE", "2".as_ref())];
        training::start_in(name, tempfile::tempdir().unwrap(), &variables, train)
    });
    ranks.iter().for_each(training::Training::wait_for_steps);
    let statuses = ranks.each_ref().map(training::Training::status);
    assert_eq!(statuses.each_ref().map(|status| (status.rank, status.world_size)), [(0, 2), (1, 2)]);
    // Far enough for both to get the request first.
    let first = statuses.iter().map(|status| status.step).max().unwrap() + 300;
    let recorded = ranks.each_ref().map(|rank| {
        let (mut client, out) = (rank.client(), rank.folder.path().join("out"));
        let record = Record { at_step: Some(first), out: Some(out), ..Record::steps(4) };
        std::thread::spawn(move || client.record(&record, |_| ()).unwrap())
    });
    for recorded in recorded {
        let steps = recorded_steps(&recorded.join().unwrap().files);
        assert_eq!(steps, (first..first + 4).collect::<Vec<_>>());
    }
    ranks.into_iter().for_each(|rank| drop(rank.stop()));
}

#[test]
fn another_schedule_is_followed_from_the_next_step_on() {
    let training = training::start("requests::another_schedule_is_followed_from_the_next_step_on", train);
    let mut client = training.client();
    assert_eq!(client.set_schedule("active=2,repeat=3").unwrap(), "wait 0, warmup 0, active 2, repeat 3");
    eventually("three windows", || (client.status().unwrap().windows == 3).then_some(()));
    training.wait_for_steps();
    let status = client.status().unwrap();
    assert_eq!((status.windows, status.recording), (3, false));
    training.stop();
}

#[test]
fn a_duration_and_a_slow_step_can_be_asked_for() {
    let training = training::start("requests::a_duration_and_a_slow_step_can_be_asked_for", train);
    let mut client = training.client();
    let long = Record { duration_ms: Some(30), ..Record::default() };
    assert!(client.record(&long, |_| ()).unwrap().steps > 0);
    // Each step takes longer than this.
    let slow = Record { when: Some("step_time > 1us".into()), ..Record::steps(2) };
    assert_eq!(client.record(&slow, |_| ()).unwrap().steps, 2);
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
