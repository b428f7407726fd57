//! Tests of the fields of spans and events, recorded at once or later.

use crate::support::{names, profiled, span, trace_of, tree};
use kernspan::{Collected, Profiler, report::Average, trace::Value};
use tracing::{info, info_span};
use tracing_subscriber::prelude::*;

#[test]
fn fields_keep_their_types() {
    let trace = trace_of(|_| {
        let large = 1_u128 << 100;
        info_span!("typed", a = true, b = -1, c = 2_u64, d = 0.5, e = "text", f = ?[1, 2], g = %"shown", h = large)
            .in_scope(|| ());
    });
    let typed = span(&trace, "typed");
    let value = |name| typed.field(name).unwrap().clone();
    assert_eq!(value("a"), Value::Bool(true));
    assert_eq!(value("b"), Value::I64(-1));
    assert_eq!(value("c"), Value::U64(2));
    assert_eq!(value("d"), Value::F64(0.5));
    assert_eq!(value("e"), Value::Str("text".into()));
    assert_eq!(value("f"), Value::Str("[1, 2]".into()));
    assert_eq!(value("g"), Value::Str("shown".into()));
    assert_eq!(value("h"), Value::Str("1267650600228229401496703205376".into()));
}

#[test]
fn fields_can_be_recorded_later() {
    let trace = trace_of(|_| {
        let span = info_span!("step", before = tracing::field::Empty, loss = tracing::field::Empty, after = 0);
        span.record("before", 1);
        span.in_scope(|| span.record("loss", 0.25));
        span.record("after", 2);
    });
    assert_eq!(tree(&trace), "step{after=2 before=1 loss=0.25}\n");
}

#[test]
fn a_later_field_belongs_to_the_latest_instance_and_those_to_come() {
    let trace = trace_of(|_| {
        let span = info_span!("again", turn = tracing::field::Empty);
        for turn in 0..3 {
            span.in_scope(|| ());
            span.record("turn", turn);
        }
    });
    assert_eq!(tree(&trace), "again{turn=0}\nagain{turn=1}\nagain{turn=2}\n");
}

#[test]
fn a_later_field_crosses_threads() {
    let trace = trace_of(|_| {
        let span = info_span!("work", answer = tracing::field::Empty);
        let _entered = span.clone().entered();
        std::thread::scope(|scope| scope.spawn(|| span.record("answer", 42)).join().map(drop)).unwrap();
    });
    // The other thread has no default subscriber, but a span knows its own.
    assert_eq!(tree(&trace), "work{answer=42}\n");
}

#[test]
fn fields_of_events_can_be_counters() {
    let trace = trace_of(|_| {
        for step in 0..3 {
            info!(counter.loss = 1.0 / f64::from(step + 1), counter.step = step);
        }
        info!(counter.loss = f64::NAN, "diverged");
        info!(counter.name = "no number");
    });
    let samples = |name| {
        let counter = trace.counters().iter().find(|counter| counter.name() == name).unwrap();
        counter.samples().iter().map(|&(_, value)| value).collect::<Vec<_>>()
    };
    assert_eq!(samples("loss")[..3], [1.0, 0.5, 1.0 / 3.0]);
    assert!(samples("loss")[3].is_nan());
    assert_eq!(samples("step"), [0.0, 1.0, 2.0]);
    // Events with other fields remain events, too.
    assert_eq!(trace.events().len(), 2);
}

#[test]
fn spans_can_say_what_operation_they_are() {
    let trace = trace_of(|_| {
        let shape = [64_u64, 512];
        info_span!("linear", op.shape.input = ?shape, op.dtype.input = "f32", op.flops = 2 * 64 * 512, op.bytes = 1e6,
            op.gemm = "64x1x512")
        .in_scope(|| ());
    });
    let op = span(&trace, "linear").fields().op();
    assert_eq!(op.shapes().collect::<Vec<_>>(), [("input", "[64, 512]")]);
    assert_eq!(op.dtypes().collect::<Vec<_>>(), [("input", "f32")]);
    assert_eq!((op.flops(), op.bytes(), op.gemm()), (Some(65_536), Some(1_000_000), Some("64x1x512")));
}

#[test]
fn a_debug_that_makes_spans_itself_does_no_harm() {
    struct Nosy;
    impl std::fmt::Debug for Nosy {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            info_span!("formatting", depth = 1).in_scope(|| f.write_str("Nosy"))
        }
    }
    let trace = trace_of(|_| info_span!("outer", value = ?Nosy).in_scope(|| info!(value = ?Nosy, "event")));
    // `tracing` itself disables spans made while one is being made.
    assert_eq!(tree(&trace), "outer{value=Nosy}\n");
    assert_eq!(trace.events().next().unwrap().fields().get("value").and_then(Value::as_str), Some("Nosy"));
}

#[test]
fn spans_that_are_entered_again_have_their_fields_each_time() {
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let span = info_span!("op", shape = "[1]", out = tracing::field::Empty);
        (0..3).for_each(|_| span.in_scope(|| ()));
        // The field belongs to this instance and later ones, but not to those before it.
        span.in_scope(|| span.record("out", 7));
        span.in_scope(|| span.record("shape", "[2]"));
        span.in_scope(|| ());
        // The field belongs to the instance that is open here, though there is a later one.
        span.in_scope(|| {
            let dispatch = tracing::dispatcher::get_default(Clone::clone);
            let elsewhere = || tracing::dispatcher::with_default(&dispatch, || span.in_scope(|| ()));
            std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap());
            span.record("out", 8);
        });
        span.in_scope(|| ());
    });
    profiler.finish().unwrap();
    let trace = collected.only();
    let fields_of = |span: kernspan::trace::Span<'_>| {
        let fields = span.fields().iter().map(|(name, value)| format!("{name}={value}"));
        fields.collect::<Vec<_>>().join(" ")
    };
    let main = trace.tracks()[0].thread();
    let of = |main_thread: bool| {
        let spans = trace.spans().filter(|span| (span.track().thread() == main) == main_thread);
        spans.map(fields_of).collect::<Vec<_>>()
    };
    assert_eq!(
        of(true),
        [
            "shape=[1]",
            "shape=[1]",
            "shape=[1]",
            "shape=[1] out=7",
            "shape=[2] out=7",
            "shape=[2] out=7",
            "shape=[2] out=8",
            "shape=[2] out=8",
        ]
    );
    assert_eq!(of(false), ["shape=[2] out=7"]);
}

#[test]
fn a_span_may_say_what_it_is_called() {
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let layers: Vec<_> = (0..3).map(|number| info_span!("layer", op.name = format!("layers.{number}"))).collect();
        for _ in 0..2 {
            layers.iter().for_each(|layer| layer.in_scope(|| ()));
        }
        let later = info_span!("layer", op.name = tracing::field::Empty).entered();
        later.record("op.name", "head");
        drop(later);
        info_span!("layer", op.name = tracing::field::Empty).in_scope(|| ());
        info_span!("layer", op.name = 7).in_scope(|| ());
    });
    let report = profiler.finish().unwrap();
    let trace = collected.only();
    assert_eq!(
        names(&trace),
        ["layers.0", "layers.1", "layers.2", "layers.0", "layers.1", "layers.2", "head", "layer", "layer"]
    );
    assert!(trace.spans().all(|span| span.callsite().target() == module_path!()));
    let rows = report.averages().rows();
    // Each span is one call, though those of the layers are entered twice.
    let count =
        |name: &str, count: fn(&Average) -> u64| rows.iter().filter(|row| row.name == name).map(count).sum::<u64>();
    let enters = |name: &str| count(name, |row| row.enters);
    let calls = |name: &str| count(name, |row| row.calls);
    assert_eq!((enters("layers.1"), enters("head"), enters("layer")), (2, 1, 2));
    assert_eq!((calls("layers.1"), calls("head"), calls("layer")), (1, 1, 2));
}

#[test]
fn a_field_recorded_again_and_again_stays_with_its_instance() {
    let program = |_: &Profiler| {
        let span = info_span!("again", turn = tracing::field::Empty, other = 1);
        for turn in 0..20_000_u64 {
            span.in_scope(|| ());
            span.record("turn", turn);
        }
        let _entered = span.enter();
        for turn in 0..20_000_u64 {
            span.record("turn", turn);
        }
    };
    // The lane has room for all records, whether it is emptied meanwhile or not.
    let (traces, _) = profiled(|builder| builder.lane_capacity(1 << 18), program);
    let turns: Vec<_> = traces[0].spans().map(|span| span.field("turn").unwrap().as_u64().unwrap()).collect();
    assert_eq!(turns, (0..20_000).chain([19_999]).collect::<Vec<_>>());
}
