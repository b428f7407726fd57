//! Fields, samplers and ending threads that make spans themselves, while both layers are at work.

use crate::{
    layers::{Both, Stacked, ids_of},
    support::{PATIENCE, span},
};
use kernspan::{Collected, Profiler, Schedule, trace::Span};
use opentelemetry::{
    Context, KeyValue,
    trace::{Link, SpanKind, TraceId, TraceState, TracerProvider},
};
use opentelemetry_sdk::trace::{SamplingDecision, SamplingResult, SdkTracerProvider, ShouldSample};
use std::{
    cell::{Cell, RefCell},
    fmt,
    io::Write,
    sync::{
        Arc, Barrier,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
};
use tracing::{Dispatch, dispatcher, info, info_span, span::EnteredSpan};
use tracing_subscriber::{fmt::MakeWriter, prelude::*, registry};

/// A field that makes an event and a span while it is formatted.
struct Awkward;

thread_local! {
    static LATE: RefCell<Option<EnteredSpan>> = const { RefCell::new(None) };
    static SAMPLING: Cell<bool> = const { Cell::new(false) };
}

impl fmt::Debug for Awkward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        info!("in a field");
        Spanned.fmt(f)
    }
}

/// A field that makes only a span: with an event, the layer `fmt` would deadlock.
struct Spanned;

impl fmt::Debug for Spanned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _span = info_span!("in a field", n = 1).entered();
        f.write_str("awkward")
    }
}

/// A sampler that is traced itself.
#[derive(Clone, Debug)]
struct Traced;

impl ShouldSample for Traced {
    fn should_sample(
        &self,
        _: Option<&Context>,
        _: TraceId,
        _: &str,
        _: &SpanKind,
        _: &[KeyValue],
        _: &[Link],
    ) -> SamplingResult {
        if !SAMPLING.replace(true) {
            info_span!("sampling").in_scope(|| info!("sampled"));
            SAMPLING.set(false);
        }
        let (attributes, trace_state) = (Vec::new(), TraceState::default());
        SamplingResult { decision: SamplingDecision::RecordAndSample, attributes, trace_state }
    }
}

/// Fails if `program` does not end.
fn ends(program: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let program = thread::spawn(move || {
        program();
        let _ = done.send(());
    });
    if is_done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        panic!("still at it after {PATIENCE:?}");
    }
    program.join().unwrap();
}

#[test]
fn fields_samplers_and_ending_threads_that_make_spans_do_no_harm() {
    ends(|| {
        for stacked in Stacked::ALL {
            // If contexts are not made current, their layer deadlocks when its sampler makes spans.
            let both = Both::new(stacked);
            let both = if stacked == Stacked::Inactive { both } else { both.sampler(Traced) };
            let (trace, sent) = both.run(|_| {
                let dispatch = dispatcher::get_default(Dispatch::clone);
                let outer = info_span!("outer", field = ?Awkward, later = tracing::field::Empty).entered();
                info!(field = ?Awkward, "event");
                outer.record("later", tracing::field::debug(Awkward));
                let ending = thread::spawn(move || {
                    let _default = dispatcher::set_default(&dispatch);
                    LATE.set(Some(info_span!("open when the thread ends", field = ?Awkward).entered()));
                });
                ending.join().unwrap();
            });
            let outer = span(&trace, "outer").context().unwrap();
            assert_eq!(ids_of(&sent, "outer"), Some((outer.trace_id, outer.span_id)), "{stacked:?}");
            let inside = trace.spans().filter(|span| span.name() == "in a field");
            assert!(inside.map(Span::context).all(|context| context.is_some()), "{stacked:?}");
        }
    });
}

/// Some layers format fields while they hold the lock of the span.
#[test]
fn a_thread_may_join_a_window_while_fields_are_formatted() {
    #[derive(Clone, Copy)]
    struct Nowhere;
    impl Write for Nowhere {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    impl MakeWriter<'_> for Nowhere {
        type Writer = Self;
        fn make_writer(&self) -> Self {
            *self
        }
    }
    ends(|| {
        let collected = Collected::new();
        let provider = SdkTracerProvider::builder().build();
        let builder = Profiler::builder().schedule(Schedule::manual()).export(collected.clone());
        let (ours, profiler) = builder.build().unwrap();
        let theirs = tracing_opentelemetry::layer().with_tracer(provider.tracer("tests"));
        let printed = tracing_subscriber::fmt::layer().with_writer(Nowhere);
        let dispatch: Dispatch = registry().with(printed).with(theirs).with(ours).into();
        let barrier = Arc::new(Barrier::new(2));
        let at = Arc::clone(&barrier);
        let worker = thread::spawn(move || {
            let _default = dispatcher::set_default(&dispatch);
            let open = info_span!("open", later = tracing::field::Empty).entered();
            at.wait();
            at.wait();
            open.record("later", tracing::field::debug(Spanned));
        });
        barrier.wait();
        profiler.start();
        barrier.wait();
        worker.join().unwrap();
        profiler.stop();
        profiler.finish().unwrap();
        let trace = collected.only();
        assert!(trace.spans().len() > 1 && trace.spans().all(|span| span.context().is_some()));
    });
}
