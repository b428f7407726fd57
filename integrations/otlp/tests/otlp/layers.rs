//! Our layer and one of `tracing-opentelemetry` in one subscriber.

use kernspan::{Collected, Profiler, ProfilerBuilder, ProfilerLayer, Trace};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracer, SdkTracerProvider, ShouldSample, SpanData};
use std::sync::Arc;
use tracing::{Dispatch, dispatcher, info, info_span};
use tracing_subscriber::{filter::filter_fn, prelude::*, registry};

/// The order of the layers in the subscriber.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stacked {
    OursOutside,
    OursInside,
    Boxed,
    /// A filter hides spans whose names begin with `hidden` from theirs.
    Filtered,
    FilteredInside,
    /// Contexts are not made current when spans are entered.
    Inactive,
    WithoutTheirs,
}

impl Stacked {
    pub(crate) const ALL: [Self; 6] =
        [Self::OursOutside, Self::OursInside, Self::Boxed, Self::Filtered, Self::FilteredInside, Self::Inactive];

    pub(crate) fn dispatch(self, ours: ProfilerLayer, tracer: SdkTracer) -> Dispatch {
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

    pub(crate) fn hides(self, name: &str) -> bool {
        matches!(self, Self::Filtered | Self::FilteredInside) && name.starts_with("hidden")
    }
}

/// A program that runs under both layers.
pub(crate) struct Both {
    stacked: Stacked,
    builder: ProfilerBuilder,
    sampler: Box<dyn ShouldSample>,
}

impl Both {
    pub(crate) fn new(stacked: Stacked) -> Self {
        Self { stacked, builder: Profiler::builder(), sampler: Box::new(Sampler::AlwaysOn) }
    }

    pub(crate) fn setup(mut self, setup: impl FnOnce(ProfilerBuilder) -> ProfilerBuilder) -> Self {
        self.builder = setup(self.builder);
        self
    }

    pub(crate) fn sampler(mut self, sampler: impl ShouldSample + 'static) -> Self {
        self.sampler = Box::new(sampler);
        self
    }

    /// Runs a program, and returns our trace of it and the spans that they sent.
    pub(crate) fn run(self, program: impl FnOnce(&Profiler)) -> (Arc<Trace>, Vec<SpanData>) {
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

pub(crate) type Ids = (u128, u64);

pub(crate) fn ids_of(sent: &[SpanData], name: &str) -> Option<Ids> {
    let span = sent.iter().find(|span| span.name == name)?;
    let ids = (span.span_context.trace_id().to_bytes(), span.span_context.span_id().to_bytes());
    Some((u128::from_be_bytes(ids.0), u64::from_be_bytes(ids.1)))
}

/// Checks that each span of ours has the ids of their span of the same name, if they saw it.
pub(crate) fn assert_same(stacked: Stacked, trace: &Trace, sent: &[SpanData]) {
    assert!(trace.losses().is_empty(), "{stacked:?}: {:?}", trace.losses());
    for span in trace.spans() {
        let ours = span.context().map(|context| (context.trace_id, context.span_id));
        let theirs = ids_of(sent, span.name());
        assert_eq!(ours, theirs, "{stacked:?}: {}", span.name());
        assert_eq!(theirs.is_none(), stacked.hides(span.name()), "{stacked:?}: {}", span.name());
        assert!(span.context().is_none_or(|context| context.sampled));
    }
}

/// Spans in each other, some of which [`Stacked::Filtered`] hides, and one of another trace.
pub(crate) fn nested() {
    let _outer = info_span!("outer").entered();
    info_span!("inner", x = 1).in_scope(|| {
        info!("event");
        let _hidden = info_span!("hidden", y = 2).entered();
        info_span!("seen inside").in_scope(|| info_span!("hidden inside").in_scope(|| ()));
    });
    info_span!(parent: None, "another trace").in_scope(|| ());
}
