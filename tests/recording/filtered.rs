//! A test of a filter for all layers. It has its own process, since the most verbose level is global.

use crate::support::child;
use kernspan::{Profiler, trace::Level};
use tracing_subscriber::{EnvFilter, prelude::*};

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
