//! Service levels: alerts, the recordings that they ask for, and the periodic report.

use crate::{
    of, served,
    support::{PATIENCE, eventually},
};
use kernspan::{
    FlightRecorder, Profiler, Schedule,
    control::RecordRequest,
    serving::{RequestKind, RequestLog, ServiceLevel, Slo},
};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tracing::{info_span, subscriber::with_default};
use tracing_subscriber::prelude::*;

/// Serves requests that fail, or not.
fn serve(count: u64, error: bool) {
    (0..count).for_each(|_| info_span!("request", error).in_scope(|| info_span!("answer").in_scope(|| ())));
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_violation_calls_the_hook_and_writes_what_the_flight_recorder_has_kept() {
    let folder = tempfile::tempdir().unwrap();
    let alerts = Arc::new(Mutex::new(Vec::<ServiceLevel>::new()));
    let heard = Arc::clone(&alerts);
    let slo = Slo::success("request", 99.0)
        .window(Slo::SHORTEST_WINDOW)
        .on_alert(move |level| heard.lock().unwrap().push(level.clone()))
        .record(RecordRequest::recent().into_dir(folder.path().join("slow")));
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::manual())
        .flight_recorder(FlightRecorder::steps(1000))
        .request_on("request")
        .slo(slo)
        .build()
        .unwrap();
    with_default(tracing_subscriber::registry().with(layer), || {
        // The flight recorder begins with a step.
        profiler.step();
        serve(10, false);
        eventually("the alert", || {
            // More than the few good ones, so that the alert of the first rule passes to the others.
            serve(100, true);
            (!alerts.lock().unwrap().is_empty()).then_some(())
        });
        let ends_with = |ending: &str| {
            let files = fs::read_dir(folder.path().join("slow")).ok()?;
            let mut files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
            files.any(|file| file.ends_with(ending)).then_some(())
        };
        eventually("the trace", || ends_with(".pftrace"));
        eventually("the page", || ends_with(".html"));
    });
    let report = profiler.finish().unwrap();
    let alerts = alerts.lock().unwrap();
    assert!(alerts[0].has_alert() && alerts[0].budget_left() < 0.0, "{}", alerts[0]);
    let level = &report.requests().service_levels[0];
    assert_eq!(level.alerts, alerts.len() as u64);
    let total = &of(report.requests()).total;
    assert_eq!((level.bad_ever, total.count()), (total.errors, 10 + total.errors));
    assert!(report.to_string().contains("99 % of `request` without an error"), "{report}");
    // The requests before the alert were recorded, with the spans inside them.
    assert!(report.calls() > 200, "{}", report.calls());
}

#[test]
fn requests_are_bad_if_they_take_too_long_or_fail() {
    let limit = Duration::from_secs(20);
    let slos = [Slo::latency("request", 50.0, limit), Slo::success("request", 90.0)];
    let (live, report) = served(
        |builder| slos.into_iter().fold(builder.request_on("request"), kernspan::ProfilerBuilder::slo),
        |_| {
            let now = || kernspan::trace::Timestamp::now().as_unix_nanos();
            serve(3, false);
            // Fast, but it failed.
            serve(2, true);
            // The client has waited for longer than the limit.
            let before = 2 * u64::try_from(limit.as_nanos()).unwrap();
            drop(info_span!("request", request.intended_start = now() - before));
        },
    );
    for requests in [&live, report.requests()] {
        let counts: Vec<_> = requests.service_levels.iter().map(|level| (level.requests, level.bad)).collect();
        assert_eq!(counts, [(6, 3), (6, 2)]);
    }
}

#[test]
fn a_hook_that_panics_is_a_failure_and_requests_are_still_counted() {
    let slo = Slo::success("request", 99.0).window(Slo::SHORTEST_WINDOW).on_alert(|_| panic!("no pager"));
    let (layer, profiler) = Profiler::builder().request_on("request").slo(slo).build().unwrap();
    with_default(tracing_subscriber::registry().with(layer), || {
        eventually("the alert", || {
            serve(100, true);
            (profiler.requests().service_levels[0].alerts > 0).then_some(())
        });
        serve(10, true);
    });
    let kernspan::Error::Run { failures, report, .. } = profiler.finish().unwrap_err() else { panic!() };
    assert!(failures[0].to_string().contains("no pager"), "{}", failures[0]);
    let total = &of(report.requests()).total;
    assert!(total.count() >= 110 && total.count() % 100 == 10, "{}", total.count());
}

#[test]
fn the_trace_of_a_slow_request_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let limit = Duration::from_secs(20);
    let kind = RequestKind::new("request").by("route").write_slower_than(limit, folder.path());
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::manual())
        .request_on(kind)
        .flight_recorder(FlightRecorder::steps(1_000_000))
        .build()
        .unwrap();
    with_default(tracing_subscriber::registry().with(layer), || {
        // The flight recorder begins with a step.
        profiler.step();
        serve(100, false);
        let now = kernspan::trace::Timestamp::now().as_unix_nanos();
        let early = now - 2 * u64::try_from(limit.as_nanos()).unwrap();
        info_span!("request", route = "/slow", request.intended_start = early)
            .in_scope(|| info_span!("the cause").in_scope(|| ()));
        let page = || {
            let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
            files.into_iter().find(|file| file.extension().is_some_and(|ending| ending == "html"))
        };
        let page = eventually("the page", page);
        assert!(fs::read_to_string(page).unwrap().contains("the cause"));
    });
    let report = profiler.finish().unwrap();
    let slowest = &of(report.requests()).slowest;
    assert_eq!(slowest[0].labels, [("route".to_owned(), "/slow".to_owned())]);
    assert!(slowest[0].time >= 2 * limit && slowest.len() == 8 && slowest.is_sorted_by(|a, b| a.time >= b.time));
}

#[test]
fn objectives_are_checked() {
    let limit = Duration::from_millis(200);
    for (slo, expected) in [
        (Slo::latency("other", 99.0, limit), "no requests are called `other`"),
        (Slo::latency("request", 100.0, limit), "100 % is no objective"),
        (Slo::success("request", f64::NAN), "NaN % is no objective"),
        (Slo::success("request", 99.0).window(Duration::ZERO), "too short a window"),
        (Slo::success("request", 99.0).record(RecordRequest::steps(0)), "0 steps"),
    ] {
        let error = Profiler::builder().request_on("request").slo(slo).build().map(drop).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_log_has_a_line_for_each_period_and_appends_to_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new").join("requests.jsonl");
    fs::create_dir(path.parent().unwrap()).unwrap();
    // A process was killed in the middle of its line.
    fs::write(&path, "{\"time\":1}\n{\"ti").unwrap();
    let log = RequestLog::to_file(&path).every(RequestLog::LEAST);
    let kind = RequestKind::new("request").by("route");
    let (_, report) = served(
        |builder| {
            let builder = builder.request_on(kind).slo(Slo::success("request", 99.9));
            builder.request_log(log).metadata("model", "v7")
        },
        |_| {
            drop(info_span!("request", route = "/chat"));
            eventually("a line", || (fs::read_to_string(&path).unwrap().lines().count() > 2).then_some(()));
            (0..2).for_each(|_| drop(info_span!("request", route = "/embed", error = true)));
        },
    );
    let text = fs::read_to_string(&path).unwrap();
    let (old, new) = text.split_once("{\"ti\n").expect("the old line is left as it was");
    assert_eq!(old, "{\"time\":1}\n");
    let new: Vec<Value> = new.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sum = |field: &dyn Fn(&Value) -> u64| new.iter().map(field).sum::<u64>();
    // Each line is about its own time.
    let level = |line: &Value, part: &str| line["service_levels"][0]["line"][part].as_u64().unwrap();
    let outcomes: Vec<_> = new.iter().map(|line| (level(line, "good"), level(line, "bad"))).collect();
    let of_requests = new.iter().map(|line| {
        let total = &line["requests"][0]["total"];
        let [count, errors] = [&total["latency"]["count"], &total["errors"]].map(|number| number.as_u64().unwrap());
        (count - errors, errors)
    });
    assert!(of_requests.eq(outcomes.iter().copied()), "{outcomes:?}");
    assert_eq!(outcomes.iter().fold((0, 0), |sum, line| (sum.0 + line.0, sum.1 + line.1)), (1, 2));
    assert_eq!(sum(&|line| line["requests"][0]["total"]["latency"]["count"].as_u64().unwrap()), 3);
    assert_eq!(sum(&|line| line["requests"][0]["total"]["errors"].as_u64().unwrap()), 2);
    let last = new.last().unwrap();
    assert_eq!((&last["metadata"]["model"], &last["kernspan"]), (&"v7".into(), &env!("CARGO_PKG_VERSION").into()));
    assert_eq!((&last["service_levels"][0]["requests"], &last["service_levels"][0]["bad"]), (&3.into(), &2.into()));
    assert!(!cfg!(target_os = "linux") || last["peak_memory"].as_u64() > Some(1 << 20));
    let lengths: f64 = new.iter().map(|line| line["seconds"].as_f64().unwrap()).sum();
    assert!((lengths - report.requests().elapsed.as_secs_f64()).abs() < PATIENCE.as_secs_f64());
    assert!(report.to_string().contains("requests.jsonl"), "{report}");
}

#[test]
fn several_processes_can_append_to_one_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("requests.jsonl");
    let build = || {
        let builder = Profiler::builder().request_on("request").request_log(RequestLog::to_file(&path));
        builder.build().unwrap().1
    };
    let profilers: Vec<_> = (0..4).map(|_| build()).collect();
    profilers.into_iter().for_each(|profiler| drop(profiler.finish().unwrap()));
    assert_eq!(lines(&path).len(), 4);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_a_failure_and_the_service_goes_on() {
    let log = RequestLog::to_file("/dev/full");
    let (layer, profiler) = Profiler::builder().request_on("request").request_log(log).build().unwrap();
    with_default(tracing_subscriber::registry().with(layer), || serve(10, false));
    let kernspan::Error::Run { failures, report, .. } = profiler.finish().unwrap_err() else { panic!() };
    let text = failures[0].to_string();
    assert!(text.contains("request_log") && text.contains("/dev/full"), "{text}");
    assert_eq!(of(report.requests()).total.count(), 10);
}

#[test]
fn a_log_that_cannot_be_written_is_found_when_the_profiler_is_built() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "content").unwrap();
    for log in [
        RequestLog::to_file(folder.path().join("file").join("requests.jsonl")),
        RequestLog::to_file(folder.path()),
        RequestLog::to_file(folder.path().join("requests.jsonl")).every(Duration::ZERO),
    ] {
        let error = Profiler::builder().request_on("request").request_log(log).build().map(drop).unwrap_err();
        assert!(error.to_string().contains("request_log"), "{error}");
    }
    assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "content");
}
