//! Tests of a program that goes on after its profiler has finished: the layer gets out of the way. Each has its own
//! process, since the most verbose level is global.

use crate::support::{child, names};
use kernspan::{Collected, Profiler};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tracing::{Subscriber, level_filters::LevelFilter, span};
use tracing_subscriber::{Layer, layer::Context, prelude::*};

/// A layer that counts spans.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU64>);

impl Count {
    fn spans(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<S: Subscriber> Layer<S> for Count {
    fn on_new_span(&self, _: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Makes an INFO and a TRACE span. Returns whether they are enabled.
fn work() -> [bool; 2] {
    [tracing::info_span!("info"), tracing::trace_span!("trace")].map(|span| {
        span.in_scope(|| ());
        !span.is_disabled()
    })
}

#[test]
fn spans_that_nobody_else_wants_are_disabled() {
    child::alone("finished::spans_that_nobody_else_wants_are_disabled", || {
        let (collected, count) = (Collected::new(), Count::default());
        let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
        let counting = count.clone().with_filter(LevelFilter::INFO);
        tracing_subscriber::registry().with(layer.until_finished()).with(counting).init();
        assert_eq!((work(), LevelFilter::current()), ([true, true], LevelFilter::TRACE));
        profiler.finish().unwrap();
        assert_eq!((work(), LevelFilter::current()), ([true, false], LevelFilter::INFO));
        assert_eq!((names(&collected.only()), count.spans()), (vec!["info".to_owned(), "trace".to_owned()], 2));
    });
}

#[test]
fn spans_that_others_want_stay_enabled() {
    child::alone("finished::spans_that_others_want_stay_enabled", || {
        let count = Count::default();
        let (layer, profiler) = Profiler::builder().build().unwrap();
        tracing_subscriber::registry().with(count.clone()).with(layer.until_finished()).init();
        profiler.finish().unwrap();
        assert_eq!((work(), count.spans()), ([true, true], 2));
    });
}

#[test]
fn a_subscriber_of_another_thread_stays_as_it_is() {
    child::alone("finished::a_subscriber_of_another_thread_stays_as_it_is", || {
        let count = Count::default();
        let (layer, profiler) = Profiler::builder().build().unwrap();
        let subscriber = tracing_subscriber::registry().with(layer.until_finished()).with(count.clone());
        tracing::subscriber::with_default(subscriber, || {
            work();
            // This thread has no subscriber.
            std::thread::spawn(move || profiler.finish().unwrap()).join().unwrap();
            assert_eq!((work(), count.spans()), ([true, true], 4));
        });
    });
}

#[test]
fn a_layer_without_the_filter_disables_nothing_either() {
    child::alone("finished::a_layer_without_the_filter_disables_nothing_either", || {
        let count = Count::default();
        let (layer, profiler) = Profiler::builder().build().unwrap();
        tracing_subscriber::registry().with(layer).with(count.clone()).init();
        profiler.finish().unwrap();
        assert_eq!((work(), count.spans()), ([true, true], 2));
    });
}
