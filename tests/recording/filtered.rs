//! Tests of filters: the report says what they hide. Each has its own process, since the most verbose level is global,
//! and so are the callsites that were reached.

use crate::support::child;
use kernspan::{
    Profiler, Report,
    report::{DisabledSpans, Hint},
    trace::Level,
};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

#[test]
fn the_report_says_what_a_filter_hides_from_everybody() {
    child::alone("filtered::the_report_says_what_a_filter_hides_from_everybody", check);
}

fn check() {
    let (layer, profiler) = Profiler::builder().build().unwrap();
    tracing_subscriber::registry().with(EnvFilter::new("info")).with(layer).init();
    tracing::info_span!("seen").in_scope(|| tracing::trace_span!("attn").in_scope(|| ()));
    let report = profiler.finish().unwrap();
    assert_eq!((report.spans(), report.filtered()), (1, Some(Level::Info)));
    assert!(
        report
            .to_string()
            .contains("spans below INFO were off: a filter for all layers, or a feature of tracing, hides them")
    );
}

/// Makes spans of two targets and two levels.
fn work() {
    tracing::info_span!(target: "data", "load").in_scope(|| ());
    tracing::info_span!(target: "model", "forward").in_scope(|| ());
    tracing::trace_span!(target: "model", "attn").in_scope(|| ());
}

/// Returns the spans that the report says are disabled, as `target name LEVEL`.
fn disabled(report: &Report) -> (Vec<String>, &DisabledSpans) {
    let [Hint::Disabled(disabled)] = report.hints() else { panic!("{:?}", report.hints()) };
    let describe = |span: &kernspan::report::DisabledSpan| format!("{} {} {}", span.target, span.name, span.level);
    (disabled.first.iter().map(describe).collect(), disabled)
}

/// Returns a layer that prints nowhere.
fn print<S>() -> impl tracing_subscriber::Layer<S>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    fmt::layer().with_writer(std::io::sink)
}

#[test]
fn a_filter_for_all_layers_below_the_profiler() {
    child::alone("filtered::a_filter_for_all_layers_below_the_profiler", || {
        let (layer, profiler) = Profiler::builder().build().unwrap();
        tracing_subscriber::registry().with(EnvFilter::new("warn,model=debug")).with(layer).init();
        work();
        let report = profiler.finish().unwrap();
        // Spans of a level that is off for everybody are not known by name.
        assert_eq!((report.spans(), report.filtered()), (1, Some(Level::Debug)));
        let (spans, rest) = disabled(&report);
        assert_eq!((spans, rest.more, rest.all), (vec!["data load INFO".to_owned()], 0, false));
        assert!(report.to_string().contains("\nfilters disabled load (INFO, target data)\n"), "{report}");
    });
}

#[test]
fn a_filter_for_all_layers_above_the_profiler() {
    child::alone("filtered::a_filter_for_all_layers_above_the_profiler", || {
        let (layer, profiler) = Profiler::builder().build().unwrap();
        tracing_subscriber::registry().with(layer).with(EnvFilter::new("warn,model=debug")).init();
        work();
        let report = profiler.finish().unwrap();
        assert_eq!((report.spans(), report.filtered()), (1, Some(Level::Debug)));
        assert_eq!(disabled(&report).0, ["data load INFO"]);
    });
}

#[test]
fn a_filter_of_the_profilers_layer() {
    child::alone("filtered::a_filter_of_the_profilers_layer", || {
        let (layer, profiler) = Profiler::builder().build().unwrap();
        let layer = layer.with_filter(EnvFilter::new("warn,model=info"));
        tracing_subscriber::registry().with(layer).with(print()).init();
        work();
        let report = profiler.finish().unwrap();
        // The layer that prints takes all levels.
        assert_eq!((report.spans(), report.filtered()), (1, None));
        assert_eq!(disabled(&report).0, ["data load INFO", "model attn TRACE"]);
        tracing::info_span!("after").in_scope(|| ());
    });
}

#[test]
fn a_filter_of_the_profilers_layer_that_turns_everything_off() {
    child::alone("filtered::a_filter_of_the_profilers_layer_that_turns_everything_off", || {
        let (layer, profiler) = Profiler::builder().build().unwrap();
        tracing_subscriber::registry().with(layer.with_filter(LevelFilter::OFF)).with(print()).init();
        work();
        let report = profiler.finish().unwrap();
        let (spans, rest) = disabled(&report);
        assert_eq!((report.spans(), spans.len(), rest.all), (0, 3, true));
        assert!(report.to_string().contains("\nfilters disabled all spans: load (INFO, target data), "), "{report}");
    });
}

#[test]
fn a_filter_that_turns_all_levels_off() {
    child::alone("filtered::a_filter_that_turns_all_levels_off", || {
        let (layer, profiler) = Profiler::builder().build().unwrap();
        tracing_subscriber::registry().with(LevelFilter::OFF).with(layer).init();
        work();
        let report = profiler.finish().unwrap();
        assert_eq!(report.hints(), [Hint::AllLevelsOff]);
        assert!(report.to_string().contains("disable all spans"), "{report}");
    });
}

#[test]
fn a_filter_of_another_layer_hides_nothing() {
    child::alone("filtered::a_filter_of_another_layer_hides_nothing", || {
        let (layer, profiler) = Profiler::builder().build().unwrap();
        let print = print().with_filter(EnvFilter::new("error"));
        tracing_subscriber::registry().with(layer).with(print).init();
        work();
        let report = profiler.finish().unwrap();
        assert_eq!((report.spans(), report.hints(), report.filtered()), (3, &[][..], None));
    });
}
