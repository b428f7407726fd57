//! Spans that another layer sends, and their children that we send.

use crate::{
    layers::{Both, Stacked, ids_of, nested},
    support::PATIENCE,
};
use kernspan::Profiler;
use kernspan_otlp::{GpuSpans, Otlp};
use opentelemetry_proto::tonic::{collector::trace::v1::ExportTraceServiceRequest, trace::v1 as proto};
use opentelemetry_sdk::trace::SpanData;
use prost::Message;
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};
use tracing::info_span;

/// A collector that takes every request for traces.
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

/// Runs a program under both layers, with its spans sent to a collector. Returns the spans that we sent, and theirs.
fn sent_by_both(stacked: Stacked, program: impl FnOnce(&Profiler)) -> (Vec<proto::Span>, Vec<SpanData>) {
    let receiver = Receiver::start();
    let otlp = Otlp::from_env()
        .endpoint(&receiver.address)
        .metrics(false)
        .answer_within(PATIENCE)
        .finish_within(PATIENCE)
        .gpu(GpuSpans::Kernels);
    let (_, theirs) = Both::new(stacked).setup(|builder| builder.export(otlp)).run(program);
    let ours = std::mem::take(&mut *receiver.spans.lock().unwrap());
    (ours, theirs)
}

#[test]
fn layers_of_a_model_are_sent_below_the_spans_around_them() {
    // The other layer never sends the model's span, which does not close.
    let (ours, theirs) = sent_by_both(Stacked::OursOutside, |profiler| {
        let layer = info_span!(parent: None, "layer");
        for _ in 0..2 {
            let step = info_span!("train_step").entered();
            layer.in_scope(|| info_span!("inside").in_scope(|| ()));
            drop(step);
            profiler.step();
        }
        std::mem::forget(layer);
    });
    let layers: Vec<_> = ours.iter().filter(|span| span.name == "layer").collect();
    let steps: Vec<_> = theirs.iter().filter(|span| span.name == "train_step").collect();
    assert_eq!((layers.len(), steps.len()), (2, 2));
    for (layer, step) in layers.iter().zip(steps) {
        assert_eq!(layer.trace_id, step.span_context.trace_id().to_bytes());
        assert_eq!(layer.parent_span_id, step.span_context.span_id().to_bytes());
    }
}

#[test]
fn nothing_is_sent_that_the_other_layer_sends() {
    for stacked in Stacked::ALL.into_iter().chain([Stacked::WithoutTheirs]) {
        let (spans, sent) = sent_by_both(stacked, |profiler| {
            nested();
            profiler.step();
        });
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
        // The step has a trace of its own, which is linked to theirs.
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
