//! Spans that Jaeger gives back, compared one by one with those that it was sent: windows recorded on an H200, a
//! program that runs now, and a hundred thousand kernels.

#[path = "../../../../benches/support/window.rs"]
mod window;

use crate::support::{
    collectors::Jaeger,
    profiled,
    spans::{Attributes, Span, Value},
};
use kernspan::{
    Exporter, Trace,
    analysis::Analysis,
    trace::{Detail, Step, Timestamp},
};
use kernspan_otlp::{GpuSpans, Otlp, Protocol};
use prost::Message;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The name, start and end of a span, by which it is found without ids.
type Key = (String, u64, u64);

fn key(span: &Span) -> Key {
    (span.name.clone(), span.start, span.end)
}

fn meant(name: &str, start: Timestamp, end: Timestamp) -> Key {
    (name.to_owned(), start.as_unix_nanos(), end.as_unix_nanos())
}

/// The spans that Jaeger has of a step.
struct Found {
    spans: Vec<Span>,
}

impl Found {
    /// The steps of a service by number; spans of no step are under `None`.
    fn by_step(jaeger: &Jaeger, service: &str) -> BTreeMap<Option<i64>, Self> {
        let mut steps = BTreeMap::new();
        for (id, spans) in jaeger.traces(service) {
            // A query by id finds the same spans.
            assert_eq!(jaeger.trace(&id).len(), spans.len());
            let root = spans.iter().find(|span| span.parent.is_empty()).unwrap();
            let number = root.attributes.get("kernspan.step.number").map(|number| match number {
                Value::Int(number) => *number,
                other => panic!("{other:?}"),
            });
            let links: Vec<_> = root.links.iter().map(|link| link.trace_id.as_str()).collect();
            assert_eq!(links, ["0af7651916cd43dd8448eb211c80319c"], "a step is linked to its run");
            assert!(steps.insert(number, Self { spans }).is_none(), "{number:?} is there twice");
        }
        steps
    }

    /// The parents and attributes of all spans.
    fn with_parents(&self) -> BTreeMap<Key, Vec<(Option<Key>, &Attributes)>> {
        let by_id: BTreeMap<_, _> = self.spans.iter().map(|span| (span.id.as_str(), span)).collect();
        let mut found = BTreeMap::<_, Vec<_>>::new();
        for span in &self.spans {
            let parent = by_id.get(span.parent.as_str()).map(|parent| key(parent));
            assert!(parent.is_some() || span.parent.is_empty(), "{} has a parent that is not there", span.name);
            found.entry(key(span)).or_default().push((parent, &span.attributes));
        }
        found
    }
}

/// Compares a window with the spans that Jaeger has.
fn compare(trace: &Trace, steps: &BTreeMap<Option<i64>, Found>, gpu: GpuSpans) {
    let number = |step: Option<u64>| step.map(|number| i64::try_from(number).unwrap());
    let all: BTreeMap<_, _> = steps.iter().map(|(step, found)| (*step, found.with_parents())).collect();
    let mut expected = BTreeMap::<Option<i64>, usize>::new();
    let root = |step: Option<u64>| match step {
        None => meant(&format!("window {}", trace.window()), trace.start(), trace.end()),
        Some(wanted) => {
            let step = trace.steps().iter().find(|step| step.number() == wanted).unwrap();
            meant(&format!("step {wanted}"), step.start(), step.end())
        }
    };
    for step in trace.steps() {
        let found = &all[&number(Some(step.number()))];
        assert_eq!(found[&root(Some(step.number()))].len(), 1);
        *expected.entry(number(Some(step.number()))).or_default() += 1;
    }
    for span in trace.spans() {
        let step = span.step().map(Step::number);
        let found = &all[&number(step)][&meant(span.name(), span.start(), span.end())];
        let parent = span.parent().filter(|parent| parent.step().map(Step::number) == step);
        let parent = parent.map_or_else(|| root(step), |parent| meant(parent.name(), parent.start(), parent.end()));
        let (of, attributes) = found.iter().find(|(of, _)| of.as_ref() == Some(&parent)).unwrap();
        assert_eq!(of.as_ref(), Some(&parent));
        for (name, value) in span.fields().iter() {
            let expected = match value {
                kernspan::trace::Value::Bool(value) => Value::Bool(*value),
                kernspan::trace::Value::I64(value) => Value::Int(*value),
                kernspan::trace::Value::U64(value) => Value::Int(i64::try_from(*value).unwrap()),
                kernspan::trace::Value::F64(value) => Value::Double(*value),
                other => Value::Text(other.to_string()),
            };
            assert_eq!(attributes[name], expected, "{name} of {}", span.name());
        }
        *expected.entry(number(step)).or_default() += 1;
    }
    for work in trace.work().filter(|_| gpu == GpuSpans::Kernels) {
        let step = work.step().map(Step::number);
        let owner = work.span().map_or_else(|| root(step), |span| meant(span.name(), span.start(), span.end()));
        let at = (work.start().as_unix_nanos(), work.end().as_unix_nanos());
        let same_time = |(name, start, end): &&Key| (*start, *end) == at && work.name().to_string().contains(&**name);
        let found = all[&number(step)].iter().filter(|(key, _)| same_time(key)).flat_map(|(_, found)| found);
        let full = |attributes: &Attributes| match work.detail() {
            Detail::Kernel(kernel) => attributes.get("cuda.kernel.name") == Some(&Value::Text(kernel.name.to_string())),
            Detail::Copy(copy) => attributes.get("cuda.memcpy.bytes") == Some(&Value::Int(copy.bytes as i64)),
            _ => attributes.contains_key("cuda.memset.bytes"),
        };
        let found = found.filter(|(of, attributes)| of.as_ref() == Some(&owner) && full(attributes)).count();
        assert!(found > 0, "{} of {owner:?} is not there", work.name());
        *expected.entry(number(step)).or_default() += 1;
    }
    for (step, expected) in expected {
        // Spans of no step have the window as root.
        let root = usize::from(step.is_none());
        assert_eq!(steps[&step].spans.len(), expected + root, "{step:?}");
    }
}

fn fixture(name: &str) -> Trace {
    let path = format!("{}/../../tests/fixtures/gpu/{name}.kernspan", env!("CARGO_MANIFEST_DIR"));
    kernspan::replay(std::fs::File::open(path).unwrap()).unwrap()
}

#[test]
#[ignore = "builds Jaeger: .ci/run consumers"]
fn windows_of_a_gpu_are_given_back_span_by_span() {
    let jaeger = Jaeger::start();
    for (name, protocol) in
        [("training", Protocol::HttpProtobuf), ("candle", Protocol::Grpc), ("burn", Protocol::HttpProtobuf)]
    {
        let address = if protocol == Protocol::Grpc { jaeger.grpc() } else { jaeger.http() };
        let trace = fixture(name);
        for (gpu, gzip) in [(GpuSpans::Aggregate, false), (GpuSpans::Kernels, true)] {
            let service = format!("{name} {gpu:?}");
            let otlp = Otlp::from_env().protocol(protocol).endpoint(&address).gzip(gzip).service(&service).gpu(gpu);
            otlp.parent(PARENT).export(&Analysis::of(&trace)).unwrap();
            let found = Found::by_step(&jaeger, &service);
            compare(&trace, &found, gpu);
            for span in found.values().flat_map(|found| &found.spans) {
                assert_eq!(span.resource["hw.model"], Value::Text(trace.devices()[0].name.clone()));
                assert_eq!(span.resource["hw.id"], Value::Text(trace.devices()[0].uuid.clone()));
            }
            let busy = found
                .values()
                .flat_map(|found| &found.spans)
                .filter(|span| span.attributes.contains_key("gpu.busy_ns"));
            assert!(busy.count() > 0);
        }
    }
}

#[test]
#[ignore = "builds Jaeger: .ci/run consumers"]
fn a_program_that_runs_is_given_back_span_by_span() {
    let jaeger = Jaeger::start();
    let otlp = Otlp::from_env().endpoint(jaeger.http()).service("live").metrics(false).parent(PARENT);
    let (traces, report) = profiled(
        |builder| builder.export(otlp.resource("deployment", "test")).rank(1, 2),
        |profiler| {
            for step in 0..5_u64 {
                let train = tracing::info_span!("train_step", step, rate = 0.5, name = "snow ☃", on = true).entered();
                tracing::info_span!("forward").in_scope(|| tracing::info!(counter.loss = 0.25, "halved"));
                let elsewhere = || tracing::info_span!("elsewhere", negative = -3_i64).in_scope(|| ());
                let dispatch = tracing::dispatcher::get_default(Clone::clone);
                std::thread::scope(|scope| {
                    scope.spawn(|| tracing::dispatcher::with_default(&dispatch, elsewhere));
                });
                tracing::info_span!("broken").in_scope(|| tracing::error!("it broke"));
                drop(train);
                profiler.step();
            }
        },
    );
    let [spans] = report.deliveries() else { panic!("{:?}", report.deliveries()) };
    let mut all = jaeger.traces("live");
    assert_eq!((spans.lost(), spans.sent), (0, all.values().map(|spans| spans.len() as u64).sum()));
    // The run is a span of its parent's trace.
    let run = all.remove("0af7651916cd43dd8448eb211c80319c").unwrap();
    assert_eq!((run[0].name.as_str(), run[0].parent.as_str(), run.len()), ("run", "b7ad6b7169203331", 1));
    let linked = all.values().flatten().flat_map(|span| &span.links).filter(|link| link.span_id == run[0].id).count();
    assert_eq!(linked, all.len());
    let mut steps = BTreeMap::new();
    for (_, spans) in all {
        let number = spans.iter().find_map(|span| span.attributes.get("kernspan.step.number").cloned());
        steps.insert(
            number.map(|number| if let Value::Int(number) = number { number } else { panic!("{number:?}") }),
            Found { spans },
        );
    }
    let [trace] = &traces[..] else { panic!("{} windows", traces.len()) };
    compare(trace, &steps, GpuSpans::Aggregate);
    let broken = steps[&Some(2)].spans.iter().find(|span| span.name == "broken").unwrap();
    assert_eq!((broken.status.clone(), broken.events[0].name.as_str()), ((2, "it broke".to_owned()), "it broke"));
    let resource = &broken.resource;
    assert_eq!((&resource["dl.rank"], &resource["dl.world_size"]), (&Value::Int(1), &Value::Int(2)));
    assert_eq!(resource["deployment"], Value::Text("test".to_owned()));
    let step = steps[&Some(2)].spans.iter().find(|span| span.parent.is_empty()).unwrap();
    assert_eq!(step.attributes["kernspan.counter.loss"], Value::Double(0.25));
    assert_eq!(
        jaeger.operations("live"),
        ["broken", "elsewhere", "forward", "run", "step 0", "step 1", "step 2", "step 3", "step 4", "train_step"]
            .map(str::to_owned)
            .into()
    );
}

#[test]
#[ignore = "builds Jaeger: .ci/run consumers"]
fn a_hundred_thousand_kernels_are_all_given_back() {
    const KERNELS: u32 = 100_000;
    let trace = kernspan::replay(&*window::Window::of(KERNELS).encode_to_vec()).unwrap();
    let jaeger = Jaeger::start();
    let otlp = Otlp::from_env().endpoint(jaeger.http()).service("many").gpu(GpuSpans::Kernels).parent(PARENT);
    otlp.finish_within(Duration::from_secs(120)).export(&Analysis::of(&trace)).unwrap();
    let mut found = BTreeSet::new();
    for spans in jaeger.traces("many").into_values() {
        for span in spans.iter().filter(|span| span.attributes.contains_key("cuda.kernel.name")) {
            assert!(found.insert((span.trace_id.clone(), span.id.clone())));
        }
    }
    assert_eq!(found.len(), KERNELS as usize);
    let times: BTreeMap<u64, u64> =
        trace.work().map(|work| (work.start().as_unix_nanos(), work.end().as_unix_nanos())).collect();
    assert_eq!(times.len(), KERNELS as usize);
}
