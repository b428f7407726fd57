//! A program that computes on rayon's threads, with filters of each kind.

use crate::{calls, check, support::child};
use kernspan::{Collected, Profiler, report::Hint, trace::Level};
use rayon::prelude::*;
use std::{collections::BTreeSet, io};
use tracing::{debug_span, info_span};
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

const THREADS: usize = 4;
const ITEMS: u64 = 500;

/// Computes on all threads of a pool of its own, with a span for each thread, and one or two for each item.
fn compute() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(THREADS).build().unwrap();
    let batch = info_span!("batch").entered();
    pool.broadcast(|_| info_span!("warm_up").in_scope(|| ()));
    let sum: u64 = pool.install(|| {
        let item = |item| info_span!("item", item).in_scope(|| debug_span!("detail").in_scope(|| item));
        (0..ITEMS).into_par_iter().map(item).sum()
    });
    assert_eq!(sum, ITEMS * (ITEMS - 1) / 2);
    drop(batch);
}

/// Returns a layer that prints nowhere.
fn print<S>() -> impl tracing_subscriber::Layer<S>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    fmt::layer().with_writer(io::sink)
}

#[test]
fn a_filter_of_the_layer_that_prints() {
    child::alone("parallel::a_filter_of_the_layer_that_prints", || {
        let collected = Collected::new();
        let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
        tracing_subscriber::registry().with(layer).with(print().with_filter(EnvFilter::new("warn"))).init();
        compute();
        let report = profiler.finish().unwrap();
        check(&report, &[("batch", 1), ("detail", ITEMS), ("item", ITEMS), ("warm_up", THREADS as u64)]);
        let trace = collected.only();
        let threads_of = |name: &str| -> BTreeSet<_> {
            trace.spans().filter(|span| span.name() == name).map(|span| span.track().thread()).collect()
        };
        assert_eq!((threads_of("warm_up").len(), threads_of("batch").len()), (THREADS, 1));
        assert!(threads_of("item").is_subset(&threads_of("warm_up")));
        // Each item is on one thread, with its detail inside.
        assert!(trace.spans().filter(|span| span.name() == "detail").all(|span| {
            let parent = span.parent().unwrap();
            parent.name() == "item" && parent.track().thread() == span.track().thread()
        }));
    });
}

#[test]
fn a_filter_of_the_profilers_layer() {
    child::alone("parallel::a_filter_of_the_profilers_layer", || {
        let (layer, profiler) = Profiler::builder().build().unwrap();
        let layer = layer.with_filter(EnvFilter::new("info"));
        tracing_subscriber::registry().with(print()).with(layer).init();
        compute();
        let report = profiler.finish().unwrap();
        let expected = [("batch", 1), ("item", ITEMS), ("warm_up", THREADS as u64)];
        assert_eq!(calls(&report), expected.map(|(name, number)| (name.to_owned(), number)));
        let [Hint::Disabled(disabled)] = report.hints() else { panic!("{:?}", report.hints()) };
        let names: Vec<_> = disabled.first.iter().map(|span| (span.name.as_str(), span.level)).collect();
        assert_eq!((names, disabled.more, disabled.all), (vec![("detail", Level::Debug)], 0, false));
    });
}

#[test]
fn a_filter_for_all_layers() {
    child::alone("parallel::a_filter_for_all_layers", || {
        let (layer, profiler) = Profiler::builder().build().unwrap();
        tracing_subscriber::registry().with(EnvFilter::new("info")).with(print()).with(layer).init();
        compute();
        let report = profiler.finish().unwrap();
        check(&report, &[("batch", 1), ("item", ITEMS), ("warm_up", THREADS as u64)]);
        assert_eq!(report.filtered(), Some(Level::Info));
    });
}
