//! A small training, and what became of its spans.

use crate::{
    collector::{Collector, Protocol},
    support::{PATIENCE, steps},
};
use kernspan::{Profiler, Schedule, export::Delivery};
use kernspan_otlp::Otlp;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tracing::info_span;
use tracing_subscriber::prelude::*;

pub(crate) const BOTH: [Protocol; 2] = [Protocol::Http, Protocol::Grpc];
pub(crate) const STEPS: u64 = 10;
/// The time to finish of a run whose spans are lost anyway.
pub(crate) const SOON: Duration = Duration::from_millis(700);

/// An exporter of traces to this address, with enough time on any machine.
pub(crate) fn otlp(protocol: Protocol, address: &str) -> Otlp {
    let protocol = match protocol {
        Protocol::Http => kernspan_otlp::Protocol::HttpProtobuf,
        Protocol::Grpc => kernspan_otlp::Protocol::Grpc,
    };
    Otlp::from_env().protocol(protocol).endpoint(address).metrics(false).answer_within(PATIENCE).finish_within(PATIENCE)
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The number of its spans, with those of its steps and of itself.
    pub(crate) produced: u64,
    pub(crate) delivery: Delivery,
    took: Duration,
}

impl Outcome {
    pub(crate) fn lost(&self, cause: &str) -> u64 {
        self.delivery.lost.iter().filter(|(name, _)| *name == cause).map(|(_, count)| count).sum()
    }

    pub(crate) fn problem(&self) -> &str {
        self.delivery.problem.as_deref().unwrap_or_default()
    }
}

/// Trains in windows of two steps, with three spans in each step, and calls `between` after each step.
pub(crate) fn train_with(otlp: Otlp, mut between: impl FnMut(u64)) -> Outcome {
    let began = Instant::now();
    let produced = Arc::new(AtomicU64::new(1));
    let count = Arc::clone(&produced);
    let (layer, profiler) = Profiler::builder()
        .rank(0, 1)
        .schedule(Schedule::new().active(2))
        .export(otlp)
        .on_trace(move |trace| {
            assert!(trace.spans().all(|span| span.step().is_some()));
            count.fetch_add(trace.spans().count() as u64 + trace.steps().len() as u64, Ordering::Relaxed);
        })
        .build()
        .unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for step in 0..STEPS {
            info_span!("forward", step).in_scope(|| info_span!("attention").in_scope(|| ()));
            info_span!("backward").in_scope(|| ());
            profiler.step();
            between(step);
        }
    });
    // Spans that are lost are a failure of the exporter, as a file is that cannot be written.
    let (report, failures) = match profiler.finish() {
        Ok(report) => (report, 0),
        Err(kernspan::Error::Run { report, failures, .. }) => {
            assert!(failures.iter().all(|failure| failure.origin() == "Otlp"), "{failures:?}");
            (*report, failures.len())
        }
        Err(error) => panic!("{error}"),
    };
    let [delivery] = report.deliveries() else { panic!("{:?}", report.deliveries()) };
    let outcome =
        Outcome { produced: produced.load(Ordering::Relaxed), delivery: delivery.clone(), took: began.elapsed() };
    assert_eq!(failures > 0, delivery.lost() > 0, "{outcome:?}");
    assert_eq!(report.completeness().is_complete(), delivery.lost() == 0, "{}", report.completeness());
    assert!(outcome.produced > STEPS * 4, "{outcome:?}");
    assert_eq!(outcome.delivery.sent + outcome.delivery.lost(), outcome.produced, "{outcome:?}");
    assert!(outcome.took < PATIENCE, "{outcome:?}");
    outcome
}

/// Trains, and counts spans.
pub(crate) fn train(otlp: Otlp) -> Outcome {
    train_with(otlp, |_| ())
}

/// Trains with a collector that gets nothing. The time to finish grows until the problem is known, as a busy machine
/// may need long for the first try.
pub(crate) fn train_in_vain(otlp: impl Fn() -> Otlp, why: &str) -> Outcome {
    let mut within = SOON;
    loop {
        let outcome = train(otlp().finish_within(within));
        assert_eq!(outcome.delivery.sent, 0, "{outcome:?}");
        if !outcome.problem().is_empty() && outcome.problem().to_lowercase().contains(why) {
            return outcome;
        }
        within *= 4;
        assert!(within < PATIENCE, "{outcome:?}");
    }
}

/// Checks that each span was sent, and has arrived once.
#[track_caller]
pub(crate) fn assert_all_arrived(collector: &Collector, outcome: &Outcome) {
    assert_all_arrived_at_least_once(collector, outcome);
    assert_eq!(collector.spans().len() as u64, outcome.produced);
}

/// Checks that each span was sent, and has arrived; more than once, if an answer was lost.
#[track_caller]
pub(crate) fn assert_all_arrived_at_least_once(collector: &Collector, outcome: &Outcome) {
    assert_eq!(outcome.delivery.lost(), 0, "{outcome:?}");
    let spans: BTreeMap<_, _> =
        collector.spans().into_iter().map(|span| ((span.trace_id, span.span_id), span.name)).collect();
    assert_eq!(spans.len() as u64, outcome.produced);
    let named = |name: &str| spans.values().filter(|known| *known == name).count() as u64;
    assert_eq!([named("forward"), named("attention"), named("backward"), named("run")], [STEPS, STEPS, STEPS, 1]);
}

/// Returns the failure of a run whose settings are invalid, and checks that it shows no secret.
pub(crate) fn refused_to_start(otlp: Otlp) -> String {
    let shown = format!("{otlp:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    let (_, report) = steps::step_summaries(|builder| builder.export(otlp), steps::training(2));
    let failures = steps::failures(report).join("; ");
    assert!(!failures.contains("hunter2"), "{failures}");
    failures
}
