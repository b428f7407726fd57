//! Programs that have the layer in an `Option`, a box, a list or a `reload::Layer`.

use crate::{check, support::child};
use kernspan::{Profiler, ProfilerLayer};
use tracing::{Dispatch, info_span};
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, prelude::*, registry, reload};

const STEPS: u64 = 10;

fn train() {
    (0..STEPS).for_each(|_| info_span!("train_step").in_scope(|| info_span!("forward").in_scope(|| ())));
}

fn quiet() -> Box<dyn Layer<Registry> + Send + Sync> {
    fmt::layer().with_writer(std::io::sink).with_filter(EnvFilter::new("warn")).boxed()
}

/// Checks that a program with its layer in this subscriber records everything.
fn check_composed(name: &str, compose: impl FnOnce(ProfilerLayer) -> Dispatch) {
    child::alone(&format!("composed::{name}"), || {
        let (layer, profiler) = Profiler::builder().step_on("train_step").build().unwrap();
        tracing::dispatcher::set_global_default(compose(layer)).unwrap();
        train();
        std::thread::spawn(train).join().unwrap();
        let report = profiler.finish().unwrap();
        check(&report, &[("forward", 2 * STEPS), ("train_step", 2 * STEPS)]);
    });
}

#[test]
fn in_an_option() {
    check_composed("in_an_option", |layer| registry().with(Some(layer)).into());
}

#[test]
fn in_a_box() {
    let boxed = |layer: ProfilerLayer| -> Box<dyn Layer<Registry> + Send + Sync> { Box::new(layer) };
    check_composed("in_a_box", |layer| registry().with(boxed(layer)).into());
}

#[test]
fn in_a_list_with_others() {
    check_composed("in_a_list_with_others", |layer| registry().with(vec![quiet(), layer.boxed()]).into());
}

#[test]
fn in_a_reload_layer() {
    check_composed("in_a_reload_layer", |layer| registry().with(reload::Layer::new(layer).0).with(print()).into());
}

fn print<S: tracing::Subscriber + for<'a> registry::LookupSpan<'a>>() -> impl Layer<S> {
    fmt::layer().with_writer(std::io::sink)
}

/// The layer is put in when the program has run for a while, and taken out before it ends.
#[test]
fn in_a_reload_layer_for_a_while() {
    child::alone("composed::in_a_reload_layer_for_a_while", || {
        let (layer, profiler) = Profiler::builder().build().unwrap();
        let (place, handle) = reload::Layer::new(None::<ProfilerLayer>);
        registry().with(place).with(print()).init();
        train();
        handle.reload(Some(layer)).unwrap();
        train();
        handle.reload(None::<ProfilerLayer>).unwrap();
        train();
        check(&profiler.finish().unwrap(), &[("forward", STEPS), ("train_step", STEPS)]);
    });
}
