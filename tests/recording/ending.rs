//! Tests of the end of a run: every failure is reported, other exporters go on, and so does the program.

use crate::support::{PATIENCE, Unchecked, child, names, profiled};
use kernspan::{
    Chrome, Collected, Error, Exporter, Html, Perfetto, Profiler, Schedule, Stacks, TensorBoard, analysis::Analysis,
    export::ExportResult,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::mpsc,
    time::Duration,
};
use tracing::info_span;
use tracing_subscriber::prelude::*;

fn run(layer: kernspan::ProfilerLayer, program: impl FnOnce()) {
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), program);
}

fn files(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

struct Failing;

impl Exporter for Failing {
    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        Err(format!("no room for window {}", window.window()).into())
    }
}

#[test]
fn every_failure_is_returned_and_the_siblings_go_on() {
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::new().active(1))
        .on_trace(|trace| assert_ne!(trace.window(), 0, "the user's mistake"))
        .export(Failing)
        .export(collected.clone())
        .build()
        .unwrap();
    run(layer, || {
        for _ in 0..2 {
            info_span!("work").in_scope(|| ());
            profiler.step();
        }
    });
    let error = profiler.finish().unwrap_err();
    let message = error.to_string();
    assert_eq!(format!("{error:?}"), message, "what a main that returns it prints");
    let Error::Run { failures, report, .. } = error else { panic!("{error}") };
    assert_eq!(
        failures.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "on_trace, window 0: panicked: assertion `left != right` failed: the user's mistake\n  left: 0\n right: 0",
            "Failing, window 0: no room for window 0",
            "Failing, window 1: no room for window 1",
        ]
    );
    assert!(
        message.starts_with("part of the run failed; on_trace, window 0") && message.contains("window 1"),
        "{message}"
    );
    assert_eq!(report.windows(), 2);
    assert_eq!(collected.traces().len(), 2);
}

#[test]
fn an_exporter_that_always_fails_is_reported_a_few_times() {
    let schedule = Schedule::new().active(1);
    let (layer, profiler) = Profiler::builder().schedule(schedule).export(Failing).build().unwrap();
    run(layer, || {
        for _ in 0..1000 {
            info_span!("work").in_scope(|| ());
            profiler.step();
        }
    });
    let error = profiler.finish().unwrap_err();
    let end = "; Failing, window 999: failed 992 more times; the last time: no room for window 999";
    assert!(error.to_string().ends_with(end), "{error}");
    let Error::Run { failures, report, .. } = error else { panic!("{error}") };
    assert_eq!((failures.len(), report.windows()), (9, 1000));
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("runs");
    std::fs::write(&in_the_way, "a file").unwrap();
    let (layer, profiler) = Profiler::builder()
        .export(Unchecked(Chrome::to_dir(in_the_way.join("mnist"))))
        .export(Perfetto::to_dir(folder.path()))
        .build()
        .unwrap();
    run(layer, || info_span!("work").in_scope(|| ()));
    let Error::Run { failures, report, .. } = profiler.finish().unwrap_err() else { panic!() };
    let failure = failures[0].to_string();
    assert!(failure.starts_with("Chrome, window 0: cannot write ") && failure.contains("runs/mnist: "), "{failure}");
    assert_eq!((failures.len(), report.files().len()), (1, 1));
    assert_eq!(std::fs::read_to_string(&in_the_way).unwrap(), "a file");
}

#[test]
fn folders_that_cannot_be_written_are_found_before_the_training() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("runs");
    std::fs::write(&in_the_way, "a file").unwrap();
    let bad = in_the_way.join("mnist");
    let builder = Profiler::builder()
        .export(Chrome::to_dir(&bad))
        .export(Stacks::to_dir(folder.path().join("good")))
        .export(Perfetto::to_dir(&bad))
        .export(TensorBoard::to_dir(&bad))
        .export(Stacks::to_dir(&bad))
        .export(Html::to_dir(&bad));
    #[cfg(all(feature = "cuda", target_os = "linux"))]
    let builder = builder.raw_to_dir(&bad);
    let error = builder.build().unwrap_err();
    let message = error.to_string();
    assert_eq!(format!("{error:?}"), message, "what a main that returns it prints");
    let Error::Exporters { failures, .. } = error else { panic!("{error}") };
    let mut origins = vec!["Chrome", "Perfetto", "TensorBoard", "Stacks", "Html"];
    origins.extend(cfg!(all(feature = "cuda", target_os = "linux")).then_some("raw_to_dir"));
    assert_eq!(failures.iter().map(kernspan::Failure::origin).collect::<Vec<_>>(), origins);
    for failure in &failures {
        let text = failure.to_string();
        let expected = format!("{}: cannot write {}: ", failure.origin(), bad.display());
        assert!(text.starts_with(&expected), "{text}");
        assert!(message.contains(failure.origin()), "{text} in {message}");
    }
    assert_eq!(message.matches("cannot write").count(), 1, "one error for all: {message}");
    assert_eq!(std::fs::read_to_string(&in_the_way).unwrap(), "a file");
    assert_eq!(files(&folder.path().join("good")), [""; 0], "a check leaves no file");
}

#[test]
fn a_check_that_panics_is_an_error() {
    struct Rash;
    impl Exporter for Rash {
        fn export(&mut self, _: &Analysis<'_>) -> ExportResult {
            Ok(vec![])
        }
        fn check(&mut self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            panic!("no folder");
        }
    }
    let error = Profiler::builder().export(Rash).build().unwrap_err();
    assert_eq!(error.to_string(), "cannot export; Rash: panicked: no folder");
}

#[test]
fn a_training_loop_that_panics_leaves_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let (layer, profiler) = Profiler::builder().export(Stacks::to_dir(path)).build().unwrap();
        run(layer, || {
            let _step = info_span!("train_step").entered();
            // A stack whose time rounds to 0 might be left out.
            info_span!("forward").in_scope(|| std::thread::sleep(Duration::from_millis(1)));
            std::panic::resume_unwind(Box::new("shape mismatch"));
        });
        drop(profiler);
    }));
    assert!(panicked.is_err());
    let file = files(folder.path()).pop().unwrap();
    let stacks = std::fs::read_to_string(folder.path().join(file)).unwrap();
    assert!(stacks.contains("train_step;forward "), "{stacks}");
}

#[test]
fn dropping_the_profiler_exports_too() {
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
    run(layer, || {
        info_span!("work").in_scope(|| ());
        drop(profiler);
        info_span!("after").in_scope(|| ());
    });
    assert_eq!(names(&collected.only()), ["work"]);
}

#[test]
fn training_does_not_wait_for_exporters() {
    let (release, is_released) = mpsc::channel::<()>();
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::new().active(1))
        .on_trace(move |_| while is_released.recv().is_ok() {})
        .build()
        .unwrap();
    run(layer, || {
        // The exporter hangs all the while.
        for step in 0..20_u64 {
            info_span!("work", step).in_scope(|| ());
            profiler.step();
        }
    });
    drop(release);
    let report = profiler.finish().unwrap();
    assert_eq!((report.windows(), report.spans()), (20, 20));
    assert!(report.losses().is_empty());
}

#[test]
fn exporters_spans_are_not_recorded() {
    // The exporters' thread has the global subscriber only.
    child::alone("ending::exporters_spans_are_not_recorded", || {
        let (export, exported) = mpsc::channel();
        let collected = Collected::new();
        let (layer, profiler) = Profiler::builder()
            .schedule(Schedule::new().active(1))
            .on_trace(move |_| {
                info_span!("of the exporter").in_scope(|| ());
                export.send(()).unwrap();
            })
            .export(collected.clone())
            .build()
            .unwrap();
        tracing_subscriber::registry().with(layer).init();
        for _ in 0..5 {
            info_span!("of the program").in_scope(|| ());
            profiler.step();
            // The next window is open by now.
            exported.recv_timeout(PATIENCE).unwrap();
        }
        profiler.finish().unwrap();
        let traces = collected.traces();
        assert_eq!(traces.iter().map(|trace| names(trace)).collect::<Vec<_>>(), [["of the program"]; 5]);
    });
}

#[test]
fn files_have_names_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let write = |windows: u32| {
        let (_, report) = profiled(
            |builder| {
                builder.schedule(Schedule::new().active(1)).export(Chrome::to_dir(path)).export(Perfetto::to_dir(path))
            },
            |profiler| {
                for _ in 0..windows {
                    info_span!("work").in_scope(|| ());
                    profiler.step();
                }
            },
        );
        report.files().len()
    };
    // Several profilers of one process at once, each with several windows.
    let counts: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| write(5))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let names = files(path);
    assert_eq!((counts, names.len()), (40, 40));
    let pattern = |name: &str| {
        let name = name.strip_suffix(".pt.trace.json").or(name.strip_suffix(".pftrace")).unwrap();
        let (worker, nanos) = name.rsplit_once('.').unwrap();
        worker.ends_with(&format!("_{}", std::process::id())) && nanos.parse::<u64>().is_ok()
    };
    assert!(names.iter().all(|name| pattern(name)), "{names:?}");
}

#[test]
fn a_program_that_never_makes_a_span_gets_an_empty_report() {
    let (traces, report) = profiled(|builder| builder, |_| ());
    assert_eq!((traces.len(), report.spans()), (1, 0));
    assert!(report.to_string().starts_with("no spans were recorded\n"), "{report}");
}
