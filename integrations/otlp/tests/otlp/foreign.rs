//! A layer of `tracing-opentelemetry`'s beside ours: what it makes of spans is known, and not sent again.

use crate::support::{PATIENCE, span};
use kernspan::{
    Collected, Profiler, ProfilerBuilder, ProfilerLayer, Schedule, Trace,
    export::{GpuSpans, Otlp},
    trace::Span,
};
use opentelemetry::{
    Context, KeyValue,
    trace::{Link, SpanKind, TraceId, TraceState, TracerProvider},
};
use opentelemetry_proto::tonic::{collector::trace::v1::ExportTraceServiceRequest, trace::v1 as proto};
use opentelemetry_sdk::trace::{
    InMemorySpanExporter, Sampler, SamplingDecision, SamplingResult, SdkTracer, SdkTracerProvider, ShouldSample,
    SpanData,
};
use prost::Message;
use std::{
    cell::{Cell, RefCell},
    fmt,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Barrier, Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
};
use tracing::{Dispatch, dispatcher, info, info_span, span::EnteredSpan};
use tracing_subscriber::{Registry, filter::filter_fn, fmt::MakeWriter, prelude::*, registry};

/// How the layers are stacked.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stacked {
    OursOutside,
    OursInside,
    Boxed,
    /// Theirs does not see spans whose names begin with `hidden`.
    Filtered,
    FilteredInside,
    /// Contexts are not made current when spans are entered.
    Inactive,
    WithoutTheirs,
}

impl Stacked {
    const ALL: [Self; 6] =
        [Self::OursOutside, Self::OursInside, Self::Boxed, Self::Filtered, Self::FilteredInside, Self::Inactive];

    fn dispatch(self, ours: ProfilerLayer, tracer: SdkTracer) -> Dispatch {
        macro_rules! theirs {
            () => {
                tracing_opentelemetry::layer().with_tracer(tracer)
            };
        }
        let seen = || filter_fn(|metadata| !metadata.name().starts_with("hidden"));
        match self {
            Self::OursOutside => registry().with(theirs!()).with(ours).into(),
            Self::OursInside => registry().with(ours).with(theirs!()).into(),
            Self::Boxed => registry().with(vec![ours.boxed(), theirs!().boxed()]).into(),
            Self::Filtered => registry().with(theirs!().with_filter(seen())).with(ours).into(),
            Self::FilteredInside => {
                let all = filter_fn(|_| true);
                registry().with(ours.with_filter(all)).with(theirs!().with_filter(seen())).into()
            }
            Self::Inactive => registry().with(theirs!().with_context_activation(false)).with(ours).into(),
            Self::WithoutTheirs => registry().with(ours).into(),
        }
    }

    fn hides(self, name: &str) -> bool {
        matches!(self, Self::Filtered | Self::FilteredInside) && name.starts_with("hidden")
    }
}

/// A program under both layers.
struct Both {
    stacked: Stacked,
    builder: ProfilerBuilder,
    sampler: Box<dyn ShouldSample>,
}

impl Both {
    fn new(stacked: Stacked) -> Self {
        Self { stacked, builder: Profiler::builder(), sampler: Box::new(Sampler::AlwaysOn) }
    }

    fn setup(mut self, setup: impl FnOnce(ProfilerBuilder) -> ProfilerBuilder) -> Self {
        self.builder = setup(self.builder);
        self
    }

    fn sampler(mut self, sampler: impl ShouldSample + 'static) -> Self {
        self.sampler = Box::new(sampler);
        self
    }

    /// Gives back what we have of it, and what they sent.
    fn run(self, program: impl FnOnce(&Profiler)) -> (Arc<Trace>, Vec<SpanData>) {
        let collected = Collected::new();
        let exporter = InMemorySpanExporter::default();
        let provider =
            SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).with_sampler(self.sampler).build();
        let (ours, profiler) = self.builder.export(collected.clone()).build().unwrap();
        let dispatch = self.stacked.dispatch(ours, provider.tracer("tests"));
        dispatcher::with_default(&dispatch, || program(&profiler));
        profiler.finish().unwrap();
        (collected.only(), exporter.get_finished_spans().unwrap())
    }
}

type Ids = (u128, u64);

fn ids_of(sent: &[SpanData], name: &str) -> Option<Ids> {
    let span = sent.iter().find(|span| span.name == name)?;
    let ids = (span.span_context.trace_id().to_bytes(), span.span_context.span_id().to_bytes());
    Some((u128::from_be_bytes(ids.0), u64::from_be_bytes(ids.1)))
}

/// Each span of ours is the one of theirs that has its name, where they saw it.
fn assert_same(stacked: Stacked, trace: &Trace, sent: &[SpanData]) {
    assert!(trace.losses().is_empty(), "{stacked:?}: {:?}", trace.losses());
    for span in trace.spans() {
        let ours = span.context().map(|context| (context.trace_id, context.span_id));
        let theirs = ids_of(sent, span.name());
        assert_eq!(ours, theirs, "{stacked:?}: {}", span.name());
        assert_eq!(theirs.is_none(), stacked.hides(span.name()), "{stacked:?}: {}", span.name());
        assert!(span.context().is_none_or(|context| context.sampled));
    }
}

fn nested() {
    let _outer = info_span!("outer").entered();
    info_span!("inner", x = 1).in_scope(|| {
        info!("event");
        let _hidden = info_span!("hidden", y = 2).entered();
        info_span!("seen inside").in_scope(|| info_span!("hidden inside").in_scope(|| ()));
    });
    info_span!(parent: None, "another trace").in_scope(|| ());
}

#[test]
fn a_span_has_the_ids_that_the_other_layer_sends() {
    for stacked in Stacked::ALL {
        let (trace, sent) = Both::new(stacked).run(|_| nested());
        assert_eq!(trace.spans().len(), 6);
        assert_same(stacked, &trace, &sent);
        let traces: Vec<_> = ["outer", "another trace"].map(|name| ids_of(&sent, name).unwrap().0).into();
        assert_ne!(traces[0], traces[1]);
    }
}

#[test]
fn without_such_a_layer_there_are_none() {
    let (trace, sent) = Both::new(Stacked::WithoutTheirs).run(|_| nested());
    assert!(sent.is_empty() && trace.spans().len() == 6);
    assert!(trace.spans().all(|span| span.context().is_none()));
}

#[test]
fn what_is_not_sampled_is_known_to_be_so() {
    let (trace, sent) = Both::new(Stacked::OursOutside).sampler(Sampler::AlwaysOff).run(|_| nested());
    assert!(sent.is_empty());
    assert!(trace.spans().all(|span| span.context().is_some_and(|context| !context.sampled && context.span_id != 0)));
}

#[test]
fn spans_are_known_on_every_thread() {
    for stacked in Stacked::ALL {
        let (trace, sent) = Both::new(stacked).run(|_| {
            let dispatch = dispatcher::get_default(Dispatch::clone);
            let shared = info_span!("shared");
            thread::scope(|scope| {
                for name in ["a", "b", "c"] {
                    let (dispatch, shared) = (&dispatch, &shared);
                    scope.spawn(move || {
                        dispatcher::with_default(dispatch, || {
                            for _ in 0..50 {
                                shared.in_scope(|| info_span!("own", name).in_scope(|| ()));
                            }
                        });
                    });
                }
            });
        });
        let shared = ids_of(&sent, "shared").map(|(_, span)| span);
        let of = |name| trace.spans().filter(move |span| span.name() == name);
        assert_eq!((of("shared").count(), of("own").count()), (150, 150));
        assert!(of("shared").all(|span| span.context().map(|context| context.span_id) == shared));
        let mut own: Vec<_> = of("own").map(|span| span.context().unwrap().span_id).collect();
        let mut theirs: Vec<_> =
            sent.iter().filter(|span| span.name == "own").map(|span| span.span_context.span_id()).collect();
        own.sort_unstable();
        theirs.sort_unstable_by_key(|id| u64::from_be_bytes(id.to_bytes()));
        assert!(own.iter().copied().eq(theirs.iter().map(|id| u64::from_be_bytes(id.to_bytes()))));
    }
}

#[test]
fn a_span_that_is_entered_again_is_the_same() {
    for stacked in Stacked::ALL {
        let (trace, sent) = Both::new(stacked).run(|_| {
            // As an async task, which others come between.
            let (first, second) = (info_span!("first"), info_span!("second", n = 2));
            for _ in 0..1000 {
                first.in_scope(|| second.in_scope(|| first.in_scope(|| ())));
                info_span!("between").in_scope(|| ());
            }
        });
        for (name, times) in [("first", 2000), ("second", 1000)] {
            let instances: Vec<_> = trace.spans().filter(|span| span.name() == name).collect();
            assert_eq!(instances.len(), times);
            let ids = ids_of(&sent, name);
            assert!(instances.iter().all(|span| span.context().map(|it| (it.trace_id, it.span_id)) == ids));
        }
    }
}

#[test]
fn spans_begun_before_the_window_are_known() {
    for stacked in Stacked::ALL {
        let manual = |builder: ProfilerBuilder| builder.schedule(Schedule::manual());
        let (trace, sent) = Both::new(stacked).setup(manual).run(|profiler| {
            let dispatch = dispatcher::get_default(Dispatch::clone);
            let long = info_span!("long", epoch = 1).entered();
            let hidden = info_span!("hidden long").entered();
            let again = info_span!("again");
            let (one, barrier) = (again.clone().entered(), Arc::new(Barrier::new(2)));
            let other = again.clone().entered();
            let at = Arc::clone(&barrier);
            let worker = thread::spawn(move || {
                let _default = dispatcher::set_default(&dispatch);
                let before = info_span!("begun on a worker").entered();
                at.wait();
                at.wait();
                drop(before);
                at.wait();
            });
            barrier.wait();
            profiler.start();
            barrier.wait();
            info_span!("in the window").in_scope(|| ());
            barrier.wait();
            profiler.stop();
            worker.join().unwrap();
            drop((one, other, hidden, long));
        });
        assert_eq!(trace.spans().len(), 6);
        assert!(span(&trace, "long").cut().start && span(&trace, "long").cut().end);
        assert_same(stacked, &trace, &sent);
    }
}

#[test]
fn a_window_after_the_other_knows_what_is_open() {
    let schedule = |builder: ProfilerBuilder| builder.schedule(Schedule::new().active(1).repeat(3));
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let collected = Collected::new();
    let (ours, profiler) = schedule(Profiler::builder()).export(collected.clone()).build().unwrap();
    let dispatch = Stacked::OursOutside.dispatch(ours, provider.tracer("tests"));
    dispatcher::with_default(&dispatch, || {
        let _epoch = info_span!("epoch").entered();
        for _ in 0..3 {
            let _step = info_span!("train_step").entered();
            // In the span, which ends at once.
            profiler.step();
        }
    });
    profiler.finish().unwrap();
    let sent = exporter.get_finished_spans().unwrap();
    let epoch = ids_of(&sent, "epoch").unwrap();
    for trace in collected.traces().iter().take(3) {
        assert_eq!(span(trace, "epoch").context().map(|it| (it.trace_id, it.span_id)), Some(epoch));
        assert!(trace.spans().all(|span| span.context().is_some()), "{}", crate::support::tree(trace));
    }
}

/// Fields that do what they should not.
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

/// The same without an event, with which `fmt` would wait for itself.
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

/// Fails if `program` takes for ever.
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
            // Where contexts are not made current, theirs waits for itself if its sampler makes spans.
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

/// Some layers format fields with the lock of the span held that they are recorded on.
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

/// Takes requests for traces, and says yes.
struct Receiver {
    address: String,
    spans: Arc<Mutex<Vec<proto::Span>>>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let spans = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&spans);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let taken = Arc::clone(&taken);
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    while let Some(request) = request(&mut stream) {
                        let spans = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
                        taken.lock().unwrap().extend(spans.flat_map(|scope| scope.spans));
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
                    }
                });
            }
        });
        Self { address, spans }
    }
}

fn request(stream: &mut TcpStream) -> Option<ExportTraceServiceRequest> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap().trim();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    Some(ExportTraceServiceRequest::decode(&*body).unwrap())
}

#[test]
fn nothing_is_sent_that_the_other_layer_sends() {
    for stacked in Stacked::ALL.into_iter().chain([Stacked::WithoutTheirs]) {
        let receiver = Receiver::start();
        let otlp = Otlp::from_env()
            .endpoint(&receiver.address)
            .metrics(false)
            .timeout(PATIENCE)
            .finish_within(PATIENCE)
            .gpu(GpuSpans::Kernels);
        let (_, sent) = Both::new(stacked).setup(|builder| builder.export(otlp)).run(|profiler| {
            nested();
            profiler.step();
        });
        let spans = std::mem::take(&mut *receiver.spans.lock().unwrap());
        let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
        let ours = ["outer", "inner", "hidden", "seen inside", "hidden inside", "another trace"];
        for name in ours {
            let again = stacked == Stacked::WithoutTheirs || stacked.hides(name);
            assert_eq!(names.iter().filter(|sent| **sent == name).count(), usize::from(again), "{stacked:?}: {name}");
        }
        let of = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
        let theirs = |name: &str| ids_of(&sent, name).map(|(trace, span)| (trace.to_be_bytes(), span.to_be_bytes()));
        for (name, parent) in [("hidden", "inner"), ("hidden inside", "seen inside")] {
            if stacked.hides(name) {
                let (trace, span) = theirs(parent).unwrap();
                assert_eq!((&*of(name).trace_id, &*of(name).parent_span_id), (&trace[..], &span[..]), "{stacked:?}");
            }
        }
        // The step has a trace of its own, and leads to theirs.
        let links: Vec<_> = of("step 0").links.iter().map(|link| (&*link.trace_id, &*link.span_id)).collect();
        if stacked != Stacked::WithoutTheirs {
            for name in ["outer", "another trace"] {
                let (trace, span) = theirs(name).unwrap();
                assert!(links.contains(&(&trace[..], &span[..])), "{stacked:?}: {name} in {links:?}");
            }
            assert_eq!(links.len(), 3);
        } else {
            assert_eq!(links.len(), 1);
        }
    }
}

#[test]
fn the_layer_is_found_in_any_subscriber() {
    // As a program has it that decides at start.
    let provider = SdkTracerProvider::builder().build();
    let theirs = Some(tracing_opentelemetry::layer::<Registry>().with_tracer(provider.tracer("tests")));
    let collected = Collected::new();
    let (ours, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
    tracing::subscriber::with_default(registry().with(theirs).with(ours), nested);
    profiler.finish().unwrap();
    assert!(collected.only().spans().all(|span| span.context().is_some()));
}
