//! Tests of the ways in which a program ends, each in a process of its own: what is printed, and what is left in files.

use crate::support::child::{self, Ended};
use kernspan::{
    Exporter, Profiler, ProfilerBuilder,
    analysis::Analysis,
    export::{ExportResult, Run, StepExporter, StepSummary},
};
use std::{
    error::Error,
    process::{ExitCode, Termination},
};
use tracing::info_span;
use tracing_subscriber::{fmt, prelude::*};

/// An exporter that fails with each window, and with the steps.
struct Failing;

impl Exporter for Failing {
    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        Err(format!("no room for window {}", window.window()).into())
    }

    fn steps(&mut self, _: &Run) -> Option<Box<dyn StepExporter>> {
        Some(Box::new(Self))
    }
}

impl StepExporter for Failing {
    fn steps(&mut self, _: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>> {
        Err("no room for steps".into())
    }
}

/// The failures of [`Failing`] in a run of one window.
const FAILURES: [&str; 2] = ["Failing, window 0: no room for window 0", "Failing: no room for steps"];

/// Records one step, beside a layer that prints events to standard error. Installs the global subscriber.
fn train(setup: impl FnOnce(ProfilerBuilder) -> ProfilerBuilder) -> Profiler {
    let (layer, profiler) = setup(Profiler::builder()).build().unwrap();
    tracing_subscriber::registry().with(layer).with(fmt::layer().with_writer(std::io::stderr)).init();
    info_span!("train_step").in_scope(|| ());
    profiler.step();
    profiler
}

fn has_table(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("Name ")) && text.lines().any(|line| line.starts_with("train_step "))
}

#[test]
fn a_dropped_profiler_writes_each_failure_once() {
    let ended = child::program("exits::a_dropped_profiler_writes_each_failure_once", &[], || {
        drop(train(|builder| builder.export(Failing)));
    });
    let Ended { stderr, .. } = ended.wait();
    assert_eq!(stderr.lines().collect::<Vec<_>>(), FAILURES.map(|failure| format!("kernspan: {failure}")));
}

#[test]
fn a_panicking_program_writes_each_failure_once() {
    let ended = child::program("exits::a_panicking_program_writes_each_failure_once", &[], || {
        let _profiler = train(|builder| builder.export(Failing));
        panic!("shape mismatch");
    });
    let Ended { stderr, status, .. } = ended.wait();
    assert_eq!(status.code(), Some(101));
    assert!(stderr.contains("shape mismatch"), "{stderr}");
    for failure in FAILURES {
        assert_eq!(stderr.matches(failure).count(), 1, "{stderr}");
    }
}

#[test]
fn a_finished_profiler_prints_nothing() {
    let ended = child::program("exits::a_finished_profiler_prints_nothing", &[], || {
        let error = train(|builder| builder.print_report(true).export(Failing)).finish().unwrap_err();
        assert_eq!(error.to_string(), format!("part of the run failed; {}", FAILURES.join("; ")));
    });
    let Ended { status, stdout, stderr } = ended.wait();
    assert!(status.success() && stderr.is_empty() && !has_table(&stdout), "{status}: {stdout}{stderr}");
}

#[test]
fn a_dropped_profiler_prints_the_report_if_asked() {
    let ended = child::program("exits::a_dropped_profiler_prints_the_report_if_asked", &[], || {
        drop(train(|builder| builder.print_report(true).export(Failing)));
    });
    let Ended { stderr, .. } = ended.wait();
    assert!(has_table(&stderr), "{stderr}");
    assert!(stderr.lines().all(|line| line.chars().count() <= 120), "{stderr}");
    assert!(stderr.ends_with(&format!("kernspan: {}\n", FAILURES.join("\nkernspan: "))), "{stderr}");
}

#[test]
fn the_table_is_printed_also_if_an_exporter_failed() {
    let ended = child::program("exits::the_table_is_printed_also_if_an_exporter_failed", &[], || {
        let run = || -> Result<(), kernspan::Error> {
            train(|builder| builder.export(Failing)).finish_and_print()?;
            Ok(())
        };
        // As with a `main` that returns this result.
        let code = run().report();
        std::process::exit(if code == ExitCode::FAILURE { 1 } else { 0 });
    });
    let Ended { status, stdout, stderr } = ended.wait();
    assert_eq!(status.code(), Some(1));
    assert!(has_table(&stdout) && !has_table(&stderr), "{stdout}{stderr}");
    assert_eq!(stderr, format!("Error: part of the run failed; {}\n", FAILURES.join("; ")));
}

#[test]
#[cfg(unix)]
fn a_closed_standard_output_does_no_harm() {
    let ended = child::program("exits::a_closed_standard_output_does_no_harm", &[], || {
        let profiler = train(|builder| builder);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        rustix::stdio::dup2_stdout(writer).unwrap();
        let report = profiler.finish_and_print().unwrap();
        eprintln!("{} spans", report.spans());
    });
    let Ended { status, stderr, .. } = ended.wait();
    assert!(status.success() && stderr == "1 spans\n", "{status}: {stderr}");
}

/// A profiler that is dropped by a panic must not make it an abort.
#[test]
#[cfg(unix)]
fn a_closed_standard_error_does_no_harm() {
    let ended = child::program("exits::a_closed_standard_error_does_no_harm", &[], || {
        let profiler = train(|builder| builder.print_report(true).export(Failing));
        // To write to a pipe that nobody reads is an error.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        rustix::stdio::dup2_stderr(writer).unwrap();
        drop(profiler);
        println!("and went on");
    });
    let Ended { status, stdout, .. } = ended.wait();
    assert!(status.success() && stdout.contains("and went on"), "{status}: {stdout}");
}
