//! Other layers in the same subscriber see the same with kernspan as without it.

use kernspan::{Collected, Profiler, ProfilerLayer};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use std::{
    io::Write,
    sync::{Arc, Mutex},
};
use tracing::{info, info_span};
use tracing_subscriber::{prelude::*, registry};

fn program() {
    let model = info_span!("model", layers = 2);
    for step in 0..3 {
        let _step = info_span!("train_step", step, loss = tracing::field::Empty).entered();
        model.in_scope(|| info!(answer = 42, "inside"));
        tracing::Span::current().record("loss", 0.5);
    }
}

/// Returns the results of `see` without and with kernspan's layer, and the names of the spans that kernspan recorded.
fn with_and_without<R>(see: impl Fn(Option<ProfilerLayer>) -> R) -> (R, R, Vec<String>) {
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
    let (without, with) = (see(None), see(Some(layer)));
    profiler.finish().unwrap();
    (without, with, collected.only().spans().map(|span| span.name().to_owned()).collect())
}

const OURS: [&str; 6] = ["train_step", "model", "train_step", "model", "train_step", "model"];

#[test]
fn tracing_opentelemetry() {
    let (without, with, ours) = with_and_without(|layer| {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let opentelemetry = tracing_opentelemetry::layer().with_tracer(provider.tracer("other_layers"));
        tracing::subscriber::with_default(registry().with(layer).with(opentelemetry), program);
        let spans = exporter.get_finished_spans().unwrap();
        let seen = spans.iter().map(|span| {
            let attributes: Vec<_> =
                span.attributes.iter().map(|attribute| attribute.key.as_str().to_owned()).collect();
            (span.name.to_string(), attributes, span.events.len())
        });
        seen.collect::<Vec<_>>()
    });
    assert_eq!(with, without);
    assert_eq!(with.len(), 4);
    assert_eq!(ours, OURS);
}

#[test]
fn tracing_chrome() {
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);
    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (without, with, ours) = with_and_without(|layer| {
        let out = Shared::default();
        let (chrome, guard) = tracing_chrome::ChromeLayerBuilder::new().writer(out.clone()).include_args(true).build();
        tracing::subscriber::with_default(registry().with(layer).with(chrome), program);
        drop(guard);
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        // Begins, ends, instants and a field are compared; times and thread numbers differ from run to run.
        ["\"ph\":\"B\"", "\"ph\":\"E\"", "\"ph\":\"i\"", "\"answer\":\"42\""].map(|part| text.matches(part).count())
    });
    assert_eq!(with, without);
    assert_eq!(with, [6, 6, 3, 3]);
    assert_eq!(ours, OURS);
}
