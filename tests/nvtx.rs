//! Tests of spans as NVTX ranges, with a real tool: a library that NVTX's protocol loads, compiled from C.

#![cfg(all(feature = "nvtx", unix))]

mod support;

use kernspan::{Profiler, Report, Schedule, report::Hint};
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use support::{child, missing, profiled};
use tracing::{info_span, trace_span};

const TOOL: &str = "NVTX_INJECTION64_PATH";
const LOG: &str = "NVTX_TEST_LOG";

/// Compiles a library into the folder. Returns `None` if there is no compiler, which is an error if `CI=true`.
fn library(folder: &Path, source: &str) -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        missing("no cc: NVTX ranges are NOT received by a tool");
        return None;
    }
    let (file, library) = (folder.join("tool.c"), folder.join("libtool.so"));
    fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file).output().unwrap();
    assert!(compiled.status.success(), "{compiled:?}");
    Some(library)
}

/// Runs `program` in a process that the tool runs, and returns the calls that the tool has received. `name` is the name
/// of the test that calls this.
fn log(name: &str, program: impl FnOnce()) -> Option<String> {
    if std::env::var_os(LOG).is_some() {
        // This is that process, and ends here.
        drop(child::program(name, &[], program));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let (log, tool) = (folder.path().join("log"), library(folder.path(), include_str!("support/nvtx.c"))?);
    let variables: [(&str, &OsStr); 2] = [(TOOL, tool.as_ref()), (LOG, log.as_ref())];
    let ended = child::program(name, &variables, program).wait();
    assert!(ended.status.success(), "{ended:?}");
    Some(fs::read_to_string(log).unwrap())
}

/// As [`log`], without the threads, and without the domain, which is that of kernspan.
fn calls(name: &str, program: impl FnOnce()) -> Option<Vec<String>> {
    let log = log(name, program)?;
    let mut lines = log.lines().map(|line| line.split_once(' ').unwrap().1.trim_end());
    assert_eq!((lines.next(), lines.next()), (Some("loaded - 3"), Some("create - kernspan")), "{log}");
    let of_kernspan = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let (call, domain, text) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap_or(""));
        assert_eq!(domain, "kernspan", "{log}");
        format!("{call} {text}").trim_end().to_owned()
    };
    Some(lines.map(of_kernspan).collect())
}

/// A profiler of which nothing is recorded.
fn waiting(program: impl FnOnce(&Profiler)) -> Report {
    profiled(|builder| builder.schedule(Schedule::manual()).nvtx(true), program).1
}

#[test]
fn spans_are_ranges_while_the_schedule_waits() {
    let calls = calls("spans_are_ranges_while_the_schedule_waits", || {
        waiting(|_| {
            for _ in 0..2 {
                let _step = info_span!("train_step").entered();
                trace_span!("forward", batch = 32).in_scope(|| ());
            }
            info_span!("op", op.name = "conv2d").in_scope(|| ());
        });
    });
    let Some(calls) = calls else { return };
    // A name is registered at its first use.
    let first = ["register train_step", "push train_step", "register forward", "push forward", "pop", "pop"];
    let second = ["push train_step", "push forward", "pop", "pop"];
    assert_eq!(calls, [&first[..], &second, &["push \"conv2d\"", "pop"]].concat());
}

#[test]
fn recorded_spans_are_ranges_and_in_the_trace() {
    let calls = calls("recorded_spans_are_ranges_and_in_the_trace", || {
        let (traces, report) = profiled(
            |builder| builder.nvtx(true),
            |_| info_span!("outer").in_scope(|| info_span!("inner").in_scope(|| ())),
        );
        assert_eq!(support::names(&traces[0]), ["outer", "inner"]);
        assert!(report.hints().is_empty(), "{:?}", report.hints());
    });
    let Some(calls) = calls else { return };
    assert_eq!(calls, ["register outer", "push outer", "register inner", "push inner", "pop", "pop"]);
}

#[test]
#[cfg(feature = "config")]
fn a_setting_makes_spans_ranges() {
    let calls = calls("a_setting_makes_spans_ranges", || {
        let folder = tempfile::tempdir().unwrap();
        for value in ["on", "off"] {
            let dir = folder.path().to_str().unwrap();
            let settings = kernspan::config::Settings::new();
            let settings = settings.with_variables([("KERNSPAN_DIR", dir), ("KERNSPAN_NVTX", value)]).unwrap();
            profiled(|_| settings.builder().unwrap(), |_| info_span!("op", op.name = value).in_scope(|| ()));
        }
    });
    let Some(calls) = calls else { return };
    assert_eq!(calls, ["push \"on\"", "pop"]);
}

#[test]
fn spans_that_overlap_are_ranges_that_may() {
    let calls = calls("spans_that_overlap_are_ranges_that_may", || {
        waiting(|_| {
            let _around = info_span!("around").entered();
            let [first, second, third] = [info_span!("first"), info_span!("second"), info_span!("third")];
            let (first, second, third) = (first.entered(), second.entered(), third.entered());
            drop(first);
            drop(second);
            info_span!("fourth").in_scope(|| drop(third));
        });
    });
    let Some(calls) = calls else { return };
    let mut calls: Vec<_> = calls.iter().map(String::as_str).collect();
    calls.retain(|call| !call.starts_with("register"));
    let before = ["push around", "push first", "push second", "push third"];
    // The two inside the first continue, and the three pops are theirs and its own.
    let first = ["start second", "start third", "pop", "pop", "pop"];
    let rest = ["end second", "push fourth", "end third", "pop", "pop"];
    assert_eq!(calls, [&before[..], &first, &rest].concat());
}

#[test]
fn each_thread_has_its_own_ranges() {
    let log = log("each_thread_has_its_own_ranges", || {
        waiting(|_| {
            let dispatch = tracing::dispatcher::get_default(Clone::clone);
            let work = || {
                tracing::dispatcher::with_default(&dispatch, || {
                    (0..100).for_each(|_| info_span!("outer").in_scope(|| info_span!("inner").in_scope(|| ())));
                });
            };
            std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
        });
    });
    let Some(log) = log else { return };
    let mut threads = std::collections::BTreeMap::<&str, Vec<&str>>::new();
    for line in log.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        if words[1] == "push" || words[1] == "pop" {
            threads.entry(words[0]).or_default().push(words.get(3).copied().unwrap_or("pop"));
        }
    }
    assert_eq!(threads.len(), 4);
    let once = ["outer", "inner", "pop", "pop"];
    assert!(threads.values().all(|calls| *calls == once.repeat(100)), "{log}");
}

#[test]
fn ranges_end_with_the_profiler() {
    let calls = calls("ranges_end_with_the_profiler", || {
        let (layer, profiler) = Profiler::builder().schedule(Schedule::manual()).nvtx(true).build().unwrap();
        let subscriber = tracing_subscriber::layer::SubscriberExt::with(tracing_subscriber::registry(), layer);
        // Another layer keeps spans enabled.
        let subscriber = tracing_subscriber::layer::SubscriberExt::with(
            subscriber,
            tracing_subscriber::fmt::layer().with_writer(std::io::sink),
        );
        tracing::subscriber::with_default(subscriber, || {
            let open = info_span!("open").entered();
            profiler.finish().unwrap();
            info_span!("later").in_scope(|| ());
            drop(open);
        });
    });
    let Some(calls) = calls else { return };
    assert_eq!(calls, ["register open", "push open", "pop"]);
}

/// Returns the hints of a program that a tool with this library runs.
fn hints_with(name: &str, library: &Path, variables: &[(&str, &OsStr)]) -> String {
    let variables = [&[(TOOL, library.as_os_str())], variables].concat();
    let ended = child::program(name, &variables, || {
        let report = waiting(|_| info_span!("train_step").in_scope(|| ()));
        let told = report.hints().iter().filter(|hint| matches!(hint, Hint::NoNvtx { .. }));
        told.for_each(|hint| println!("hint: {hint}"));
    });
    let ended = ended.wait();
    assert!(ended.status.success(), "{ended:?}");
    ended.stdout.lines().filter_map(|line| line.strip_prefix("hint: ")).collect()
}

#[test]
fn a_tool_that_does_not_work_is_reported() {
    let hints = |library: &Path, variables: &[(&str, &OsStr)]| {
        hints_with("a_tool_that_does_not_work_is_reported", library, variables)
    };
    let none = hints(Path::new("/none/libtool.so"), &[]);
    let start = "spans are not NVTX ranges: cannot load the library /none/libtool.so of NVTX_INJECTION64_PATH: ";
    assert!(none.starts_with(start), "{none}");
    let folder = tempfile::tempdir().unwrap();
    let Some(empty) = library(folder.path(), "int nothing;") else { return };
    assert!(hints(&empty, &[]).ends_with("has no function InitializeInjectionNvtx2"));
    let refusing = library(folder.path(), include_str!("support/nvtx.c")).unwrap();
    assert!(hints(&refusing, &[("NVTX_TEST_REFUSE", OsStr::new("1"))]).ends_with("failed to initialize"));
}

#[test]
fn without_a_tool_nothing_happens() {
    let report = waiting(|_| info_span!("train_step").in_scope(|| ()));
    assert!(!report.hints().iter().any(|hint| matches!(hint, Hint::NoNvtx { .. })));
}
