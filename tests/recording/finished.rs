//! Tests of a program that goes on after its profiler has finished: the layer gets out of the way. Each has its own
//! process, since the most verbose level is global.

use crate::support::{child, names};
use kernspan::{Collected, Profiler, ProfilerLayer};
use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};
use tracing::{Dispatch, Metadata, Subscriber, dispatcher, level_filters::LevelFilter, span, subscriber::Interest};
use tracing_subscriber::{
    EnvFilter, Layer, Registry, filter::Targets, fmt, layer::Context, layer::Identity, prelude::*, registry,
    registry::LookupSpan, reload,
};

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

/// A subscriber with a profiler's layer, by name.
type Composition = (&'static str, fn(ProfilerLayer) -> Dispatch);

/// Finishes a profiler whose layer is in this subscriber. Returns which spans are enabled then, and up to which level.
fn after_finish(compose: fn(ProfilerLayer) -> Dispatch) -> ([bool; 2], LevelFilter) {
    let (layer, profiler) = Profiler::builder().build().unwrap();
    dispatcher::with_default(&compose(layer), || {
        let info = work()[0];
        assert!(info && profiler.finish().unwrap().spans() > 0);
        (work(), LevelFilter::current())
    })
}

fn check(compositions: &[Composition], expected: ([bool; 2], LevelFilter)) {
    for (name, compose) in compositions {
        assert_eq!(after_finish(*compose), expected, "{name}");
    }
}

fn reloaded<L: Layer<Registry>>(layer: L) -> reload::Layer<L, Registry> {
    reload::Layer::new(layer).0
}

#[test]
fn without_other_layers_all_levels_are_off() {
    child::alone("finished::without_other_layers_all_levels_are_off", || {
        let compositions: [Composition; 7] = [
            ("plain", |layer| registry().with(layer).into()),
            ("option", |layer| registry().with(Some(layer)).into()),
            ("box", |layer| registry().with(Box::new(layer)).into()),
            ("boxed", |layer| registry().with(layer.boxed()).into()),
            ("vec", |layer| registry().with(vec![layer]).into()),
            ("below no layer", |layer| registry().with(layer).with(None::<Identity>).into()),
            ("reloaded, below no layer", |layer| registry().with(reloaded(layer)).with(None::<Identity>).into()),
        ];
        check(&compositions, ([false, false], LevelFilter::OFF));
    });
}

#[test]
fn levels_that_others_do_not_want_are_off() {
    fn info() -> impl Layer<Registry> + Send + Sync {
        Count::default().with_filter(LevelFilter::INFO)
    }
    child::alone("finished::levels_that_others_do_not_want_are_off", || {
        let compositions: [Composition; 10] = [
            ("below a filtered layer", |layer| {
                registry().with(layer).with(quiet().with_filter(LevelFilter::INFO)).into()
            }),
            ("above a filtered layer", |layer| registry().with(info()).with(layer).into()),
            ("between filtered layers", |layer| {
                registry().with(info()).with(layer).with(quiet().with_filter(LevelFilter::WARN)).into()
            }),
            ("with a filtered layer", |layer| registry().with(layer.and_then(info())).into()),
            ("in a vec with a filtered layer", |layer| registry().with(vec![layer.boxed(), info().boxed()]).into()),
            ("reloaded", |layer| registry().with(reloaded(layer)).with(quiet().with_filter(LevelFilter::INFO)).into()),
            ("below a filter", |layer| registry().with(layer).with(EnvFilter::new("info")).into()),
            ("above a filter", |layer| registry().with(EnvFilter::new("info")).with(layer).into()),
            ("beside a layer below a filter", |layer| {
                registry().with(layer).with(Count::default()).with(EnvFilter::new("info")).into()
            }),
            ("in a subscriber that prints", |layer| {
                tracing_subscriber::fmt()
                    .with_writer(io::sink)
                    .with_max_level(LevelFilter::INFO)
                    .finish()
                    .with(layer)
                    .into()
            }),
        ];
        check(&compositions, ([true, false], LevelFilter::INFO));
    });
}

#[test]
fn levels_that_others_want_stay_on() {
    child::alone("finished::levels_that_others_want_stay_on", || {
        let compositions: [Composition; 9] = [
            ("below", |layer| registry().with(layer).with(quiet()).into()),
            ("above", |layer| registry().with(quiet()).with(layer).into()),
            ("option", |layer| registry().with(Some(layer)).with(quiet()).into()),
            ("vec", |layer| registry().with(vec![layer.boxed(), Count::default().boxed()]).into()),
            ("boxed, above", |layer| registry().with(Count::default()).with(layer.boxed()).into()),
            ("reloaded, below", |layer| registry().with(reloaded(layer)).with(quiet()).into()),
            ("beside a filtered layer and another", |layer| {
                registry().with(Count::default().with_filter(LevelFilter::INFO)).with(layer).with(quiet()).into()
            }),
            // The layer cannot know that others would be told of its level only.
            ("in a layer that hides what it is", |layer| registry().with(Hiding(layer)).with(Count::default()).into()),
            ("reloaded, alone", |layer| registry().with(reloaded(layer)).into()),
        ];
        check(&compositions, ([true, true], LevelFilter::TRACE));
    });
}

/// Returns a layer that prints nowhere.
fn quiet<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    fmt::layer().with_writer(io::sink)
}

/// A layer that passes on the questions that are documented.
struct Hiding<L>(L);

impl<S: Subscriber, L: Layer<S>> Layer<S> for Hiding<L> {
    fn register_callsite(&self, callsite: &'static Metadata<'static>) -> Interest {
        self.0.register_callsite(callsite)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.0.max_level_hint()
    }

    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, ctx: Context<'_, S>) {
        self.0.on_new_span(attributes, id, ctx);
    }

    fn on_enter(&self, id: &span::Id, ctx: Context<'_, S>) {
        self.0.on_enter(id, ctx);
    }

    fn on_exit(&self, id: &span::Id, ctx: Context<'_, S>) {
        self.0.on_exit(id, ctx);
    }

    fn on_close(&self, id: span::Id, ctx: Context<'_, S>) {
        self.0.on_close(id, ctx);
    }
}

/// The text that a layer has printed.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Printed {
    fn lines(&self) -> usize {
        self.0.lock().unwrap().split(|&byte| byte == b'\n').count() - 1
    }

    /// Returns a layer that prints to this.
    fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        let printed = self.clone();
        fmt::layer().with_writer(move || printed.clone())
    }
}

impl io::Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn others_go_on_printing() {
    fn check(lines: usize, compose: impl FnOnce(ProfilerLayer, &Printed) -> Dispatch) {
        let printed = Printed::default();
        let (layer, profiler) = Profiler::builder().build().unwrap();
        dispatcher::with_default(&compose(layer, &printed), || {
            profiler.finish().unwrap();
            tracing::info!("info");
            tracing::trace!("trace");
        });
        assert_eq!(printed.lines(), lines);
    }
    child::alone("finished::others_go_on_printing", || {
        check(2, |layer, printed| registry().with(layer).with(printed.layer()).into());
        check(2, |layer, printed| registry().with(printed.layer()).with(layer).into());
        let info = LevelFilter::INFO;
        check(1, |layer, printed| registry().with(layer).with(printed.layer().with_filter(info)).into());
        check(1, |layer, printed| registry().with(printed.layer().with_filter(info)).with(layer).into());
        let global = || EnvFilter::new("info");
        check(1, |layer, printed| registry().with(global()).with(layer).with(printed.layer()).into());
    });
}

#[test]
fn another_profiler_goes_on_recording() {
    child::alone("finished::another_profiler_goes_on_recording", || {
        let [(first, one), (second, two), (third, three)] = [(); 3].map(|()| Profiler::builder().build().unwrap());
        registry().with(first).with(second).with(third).init();
        work();
        assert_eq!(one.finish().unwrap().spans(), 2);
        assert_eq!((work(), LevelFilter::current()), ([true, true], LevelFilter::TRACE));
        assert_eq!(three.finish().unwrap().spans(), 4);
        assert_eq!((work(), LevelFilter::current()), ([true, true], LevelFilter::TRACE));
        assert_eq!(two.finish().unwrap().spans(), 6);
        assert_eq!((work(), LevelFilter::current()), ([false, false], LevelFilter::OFF));
    });
}

#[test]
fn a_profiler_that_is_dropped_has_finished() {
    child::alone("finished::a_profiler_that_is_dropped_has_finished", || {
        let (layer, profiler) = Profiler::builder().build().unwrap();
        registry().with(layer).init();
        assert_eq!(work(), [true, true]);
        drop(profiler);
        assert_eq!((work(), LevelFilter::current()), ([false, false], LevelFilter::OFF));
    });
}

#[test]
fn targets_that_others_do_not_want_are_disabled_with_the_filter() {
    fn model() -> Targets {
        Targets::new().with_target("model", LevelFilter::TRACE)
    }
    child::alone("finished::targets_that_others_do_not_want_are_disabled_with_the_filter", || {
        let plain = after_finish(|layer| registry().with(layer).with(quiet().with_filter(model())).into());
        assert_eq!(
            (
                plain.0,
                after_finish(|layer| {
                    registry().with(layer.until_finished()).with(quiet().with_filter(model())).into()
                })
                .0
            ),
            ([true, true], [false, false])
        );
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
