//! The slowest requests: which spans of which windows they are, and the files that have them.

use crate::of;
use kernspan::{
    Chrome, Collected, FlightRecorder, Profiler, Schedule,
    serving::{RequestKind, SlowRequest},
    trace::{Step, Timestamp},
};
use tracing::{Span, info_span, subscriber::with_default};
use tracing_subscriber::prelude::*;

/// A request whose client has waited for so many minutes: the more, the slower, whatever the machine does.
fn request(route: &str, minutes: u64) -> Span {
    let start = Timestamp::now().as_unix_nanos() - minutes * 60_000_000_000;
    info_span!("request", route, request.intended_start = start)
}

fn route(request: &SlowRequest) -> &str {
    &request.labels[0].1
}

#[test]
fn the_slowest_requests_are_found_in_the_windows_that_recorded_them() {
    let (folder, collected) = (tempfile::tempdir().unwrap(), Collected::new());
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::manual())
        .request_on(RequestKind::new("request").by("route"))
        .export(collected.clone())
        .export(Chrome::to_dir(folder.path()))
        .build()
        .unwrap();
    with_default(tracing_subscriber::registry().with(layer), || {
        request("/before", 50).in_scope(|| ());
        let mut polled = Some(request("/polled", 49));
        polled.iter().for_each(|polled| polled.in_scope(|| ()));
        for window in 0..2 {
            profiler.start();
            // In one another, so that the time of each has those of others in it.
            let [outer, inner] = [("/outer", 40), ("/inner", 30)]
                .map(|(name, minutes)| request(&format!("{name}/{window}"), minutes + window));
            outer.in_scope(|| inner.in_scope(|| ()));
            drop((inner, outer));
            // The registry uses the slots of closed spans again.
            (0..100).for_each(|_| request("/fast", 0).in_scope(|| ()));
            profiler.step();
            if window == 1 {
                let polled = polled.take().unwrap();
                polled.in_scope(|| ());
                // Once the window is exported, it is not searched again.
                drop(polled);
            } else {
                request("/in step 1", 20).in_scope(|| ());
            }
            profiler.stop();
        }
        request("/after", 10).in_scope(|| ());
    });
    let report = profiler.finish().unwrap();
    let traces = collected.traces();
    let slowest = &of(report.requests()).slowest;
    let routes: Vec<_> = slowest.iter().map(route).collect();
    let expected = ["/before", "/polled", "/outer/1", "/outer/0", "/inner/1", "/inner/0", "/in step 1", "/after"];
    assert_eq!(routes, expected);
    let windows: Vec<_> = slowest.iter().map(|request| request.recorded.as_ref().map(|span| span.window)).collect();
    assert_eq!(windows, [None, Some(1), Some(1), Some(0), Some(1), Some(0), Some(0), None]);
    for (request, recorded) in slowest.iter().filter_map(|request| Some((request, request.recorded.as_ref()?))) {
        let span = traces[recorded.window as usize].span(recorded.span);
        assert_eq!((span.name(), span.field("route").unwrap().to_string()), ("request", route(request).to_owned()));
        assert_eq!(recorded.step, span.step().map(Step::number));
        let [file] = &recorded.files[..] else { panic!("{recorded:?}") };
        assert!(file.starts_with(folder.path()) && report.files().contains(file), "{file:?}");
        assert!(request.latency < request.time && recorded.context.is_none());
    }
    let steps: Vec<_> = slowest.iter().map(|request| request.recorded.as_ref()?.step).collect();
    assert_ne!(steps[6], steps[5], "{steps:?}");
    // They are in the serialized report, too.
    let json = serde_json::to_value(&report).unwrap();
    let recorded = &json["requests"]["kinds"][0]["slowest"][3]["recorded"];
    assert_eq!((&recorded["window"], &recorded["context"]), (&0.into(), &serde_json::Value::Null));
}

#[test]
fn a_slow_request_names_the_trace_that_was_written_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let limit = std::time::Duration::from_secs(600);
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::manual())
        .request_on(RequestKind::new("request").by("route").write_slower_than(limit, folder.path()))
        .flight_recorder(FlightRecorder::steps(1_000_000))
        .build()
        .unwrap();
    let files = with_default(tracing_subscriber::registry().with(layer), || {
        // The flight recorder begins with a step.
        profiler.step();
        request("/fast", 0).in_scope(|| ());
        request("/slow", 20).in_scope(|| ());
        crate::support::eventually("the files", || {
            let requests = profiler.requests();
            let slow = &of(&requests).slowest[0];
            let files = &slow.recorded.as_ref()?.files;
            (route(slow) == "/slow" && !files.is_empty()).then(|| files.clone())
        })
    });
    let mut written: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
    let mut named = files.clone();
    [&mut written, &mut named].into_iter().for_each(|files| files.sort());
    assert_eq!((&named, named.len()), (&written, 3));
    let report = profiler.finish().unwrap();
    assert_eq!(of(report.requests()).slowest[0].recorded.as_ref().unwrap().files, files);
}

#[test]
fn files_that_a_limit_deletes_are_not_named() {
    let folder = tempfile::tempdir().unwrap();
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::manual())
        .request_on(RequestKind::new("request").by("route"))
        .export(Chrome::to_dir(folder.path()))
        .disk_limit_bytes(1)
        .build()
        .unwrap();
    with_default(tracing_subscriber::registry().with(layer), || {
        for (route, minutes) in [("/slow", 20), ("/fast", 10)] {
            profiler.start();
            request(route, minutes).in_scope(|| ());
            profiler.stop();
        }
    });
    let report = profiler.finish().unwrap();
    let recorded = of(report.requests()).slowest.iter().map(|request| request.recorded.as_ref().unwrap());
    let files: Vec<_> = recorded.map(|recorded| (recorded.window, recorded.files.as_slice())).collect();
    // The last window is kept, however large it is.
    assert_eq!(files, [(0, &[][..]), (1, report.files())]);
}
