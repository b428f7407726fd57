//! How traces get to a collector, over HTTP and gRPC; and what becomes of them where it is dead, slow, refuses, or takes a part only.

use crate::collector::{Behaviour, Certificates, Collector, Protocol, nowhere};
use crate::support::{PATIENCE, child, eventually};
use kernspan::{
    Profiler, Schedule,
    export::{Delivery, Otlp},
};
use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tracing::info_span;
use tracing_subscriber::prelude::*;

const BOTH: [Protocol; 2] = [Protocol::Http, Protocol::Grpc];
const STEPS: u64 = 10;
/// For what is lost anyway.
const SOON: Duration = Duration::from_millis(700);

/// To this address, as soon as it can be.
fn otlp(protocol: Protocol, address: &str) -> Otlp {
    let protocol = match protocol {
        Protocol::Http => kernspan::export::Protocol::HttpProtobuf,
        Protocol::Grpc => kernspan::export::Protocol::Grpc,
    };
    Otlp::from_env().protocol(protocol).endpoint(address).metrics(false).timeout(PATIENCE).finish_within(PATIENCE)
}

/// What came of a run.
#[derive(Debug)]
struct Outcome {
    /// How many spans it made, with those of its steps and its own.
    produced: u64,
    delivery: Delivery,
    took: Duration,
}

impl Outcome {
    fn lost(&self, cause: &str) -> u64 {
        self.delivery.lost.iter().filter(|(name, _)| *name == cause).map(|(_, count)| count).sum()
    }

    fn problem(&self) -> &str {
        self.delivery.problem.as_deref().unwrap_or_default()
    }
}

/// A training in windows of two steps, with three spans in each step; `between` is told of every step that is over.
fn train_with(otlp: Otlp, mut between: impl FnMut(u64)) -> Outcome {
    let began = Instant::now();
    let produced = Arc::new(AtomicU64::new(1));
    let count = Arc::clone(&produced);
    let (layer, profiler) = Profiler::builder()
        .rank(0, 1)
        .schedule(Schedule::new().active(2))
        .export(otlp)
        .on_trace(move |trace| {
            assert!(trace.spans().all(|span| span.step().is_some()));
            count.fetch_add(trace.spans().count() as u64 + trace.steps().len() as u64, Ordering::Relaxed);
        })
        .build()
        .unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for step in 0..STEPS {
            info_span!("forward", step).in_scope(|| info_span!("attention").in_scope(|| ()));
            info_span!("backward").in_scope(|| ());
            profiler.step();
            between(step);
        }
    });
    let report = profiler.finish().unwrap();
    let [delivery] = report.deliveries() else { panic!("{:?}", report.deliveries()) };
    let outcome =
        Outcome { produced: produced.load(Ordering::Relaxed), delivery: delivery.clone(), took: began.elapsed() };
    assert!(outcome.produced > STEPS * 4, "{outcome:?}");
    assert_eq!(outcome.delivery.sent + outcome.delivery.lost(), outcome.produced, "{outcome:?}");
    assert!(outcome.took < PATIENCE, "{outcome:?}");
    outcome
}

fn train(otlp: Otlp) -> Outcome {
    train_with(otlp, |_| ())
}

/// The same, where nothing gets through: it is given ever more time until it is known why. A busy machine may need that
/// for the first try.
fn train_in_vain(otlp: impl Fn() -> Otlp, why: &str) -> Outcome {
    let mut within = SOON;
    loop {
        let outcome = train(otlp().finish_within(within));
        assert_eq!(outcome.delivery.sent, 0, "{outcome:?}");
        if !outcome.problem().is_empty() && outcome.problem().to_lowercase().contains(why) {
            return outcome;
        }
        within *= 4;
        assert!(within < PATIENCE, "{outcome:?}");
    }
}

/// All that was produced was sent, and has arrived, once.
#[track_caller]
fn assert_all_arrived(collector: &Collector, outcome: &Outcome) {
    assert_all_arrived_at_least_once(collector, outcome);
    assert_eq!(collector.spans().len() as u64, outcome.produced);
}

/// All that was produced was sent, and has arrived: more than once, where the answer did not get through.
#[track_caller]
fn assert_all_arrived_at_least_once(collector: &Collector, outcome: &Outcome) {
    assert_eq!(outcome.delivery.lost(), 0, "{outcome:?}");
    let spans: BTreeMap<_, _> =
        collector.spans().into_iter().map(|span| ((span.trace_id, span.span_id), span.name)).collect();
    assert_eq!(spans.len() as u64, outcome.produced);
    let named = |name: &str| spans.values().filter(|known| *known == name).count() as u64;
    assert_eq!([named("forward"), named("attention"), named("backward"), named("run")], [STEPS, STEPS, STEPS, 1]);
}

#[test]
fn every_span_arrives_once() {
    for protocol in BOTH {
        for gzip in [false, true] {
            let collector = Collector::new(protocol, None);
            let outcome = train(otlp(protocol, &collector.address()).gzip(gzip));
            assert_all_arrived(&collector, &outcome);
            assert_eq!(outcome.delivery.problem, None);
            let encoding = if protocol == Protocol::Http { "content-encoding" } else { "grpc-encoding" };
            for request in collector.requests() {
                let encoding = request.headers.get(encoding).map(String::as_str);
                assert_eq!(encoding, gzip.then_some("gzip"), "{request:?}");
                let path = if protocol == Protocol::Http { "/v1/traces" } else { "TraceService/Export" };
                assert_eq!(request.path, path);
            }
        }
    }
}

#[test]
fn headers_arrive() {
    for protocol in BOTH {
        let collector = Collector::new(protocol, None);
        train(otlp(protocol, &collector.address()).header("Authorization", "Bearer of news").header("x-tenant", "7"));
        for request in collector.requests() {
            assert_eq!(request.headers["authorization"], "Bearer of news");
            assert_eq!(request.headers["x-tenant"], "7");
            let agent = &request.headers["user-agent"];
            assert!(agent.starts_with("OTel-OTLP-Exporter-Rust-kernspan/"), "{agent}");
        }
        assert!(!collector.requests().is_empty());
    }
}

/// What fails because of what the user has set, is said, without what may be secret.
fn refused_to_start(otlp: Otlp) -> String {
    let shown = format!("{otlp:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    let (_, report) =
        crate::support::steps::told_of(|builder| builder.export(otlp), crate::support::steps::training(2));
    let failures = crate::support::steps::failures(report).join("; ");
    assert!(!failures.contains("hunter2"), "{failures}");
    failures
}

#[test]
fn what_cannot_be_sent_anywhere_is_said() {
    for protocol in BOTH {
        let said = |address: &str| refused_to_start(otlp(protocol, address).finish_within(SOON));
        for address in ["localhost", "ftp://localhost", "http://", "", "http://a b"] {
            let said = said(address);
            assert!(!said.is_empty() && said.contains(address.trim_end_matches('/')), "{address}: {said}");
        }
        let said = said("ftp://me:hunter2@host/path?token=hunter2");
        assert!(said.contains("ftp://host/path"), "{said}");
        let with_header = |name, value| refused_to_start(otlp(protocol, "http://localhost:1").header(name, value));
        let said = with_header("x-\nname", "hunter2");
        assert!(said.contains("no name of a header"), "{said}");
        let said = with_header("x-token", "hunter2\n");
        assert!(said.contains("x-token"), "{said}");
    }
    let said = refused_to_start(otlp(Protocol::Grpc, "http://localhost:1").header("trace-bin", "hunter2"));
    assert!(said.contains("trace-bin"), "{said}");
}

#[test]
fn nothing_that_listens_costs_spans_only() {
    for protocol in BOTH {
        let outcome = train_in_vain(|| otlp(protocol, &nowhere()), "connection refused");
        assert_eq!(outcome.lost("too_late"), outcome.produced, "{outcome:?}");
    }
}

#[test]
fn a_collector_that_never_answers_costs_spans_only() {
    for protocol in BOTH {
        let collector = Collector::new(protocol, None);
        collector.behave(Behaviour::Silent);
        let patient = train(otlp(protocol, &collector.address()).finish_within(SOON));
        assert_eq!(patient.lost("too_late"), patient.produced, "{patient:?}");
        let impatient = || otlp(protocol, &collector.address()).timeout(Duration::from_millis(100));
        let impatient = train_in_vain(impatient, "did not answer within");
        assert_eq!(impatient.lost("too_late"), impatient.produced, "{impatient:?}");
    }
}

#[test]
fn a_slow_collector_gets_everything() {
    for protocol in BOTH {
        let collector = Collector::new(protocol, None);
        collector.behave(Behaviour::Slow(Duration::from_millis(50)));
        assert_all_arrived(&collector, &train(otlp(protocol, &collector.address())));
    }
}

#[test]
fn what_may_get_through_later_does() {
    let mishaps = [
        Behaviour::Refuse(503),
        Behaviour::RefuseFor(503, 0),
        Behaviour::RefuseFor(429, 1),
        Behaviour::Close,
        Behaviour::Noise,
    ];
    for protocol in BOTH {
        for mishap in &mishaps {
            let collector = Collector::new(protocol, None);
            (0..3).for_each(|_| collector.at_first(mishap.clone()));
            let outcome = train(otlp(protocol, &collector.address()));
            assert_all_arrived(&collector, &outcome);
            assert!(!outcome.problem().is_empty(), "{mishap:?}");
        }
    }
}

#[test]
fn a_collector_that_always_fails_costs_spans_only() {
    for protocol in BOTH {
        for mishap in [Behaviour::Refuse(503), Behaviour::RefuseFor(503, u64::MAX), Behaviour::Close, Behaviour::Noise]
        {
            let collector = Collector::new(protocol, None);
            collector.behave(mishap.clone());
            train_in_vain(|| otlp(protocol, &collector.address()), "");
        }
    }
}

#[test]
fn what_stays_wrong_is_not_tried_again() {
    for protocol in BOTH {
        for status in [400, 401, 404, 413, 500] {
            let collector = Collector::new(protocol, None);
            collector.behave(Behaviour::Refuse(status));
            let outcome = train(otlp(protocol, &collector.address()));
            assert_eq!(outcome.lost("refused"), outcome.produced, "{outcome:?}");
            assert!(outcome.problem().ends_with("no, no."), "{outcome:?}");
            let (requests, spans) = (collector.requests(), outcome.produced as usize);
            assert_eq!(requests.iter().map(|request| request.content.spans().len()).sum::<usize>(), spans);
        }
    }
}

#[test]
fn one_request_that_is_refused_is_all_that_is_lost() {
    for protocol in BOTH {
        let collector = Collector::new(protocol, None);
        collector.at_first(Behaviour::Refuse(400));
        let outcome = train(otlp(protocol, &collector.address()));
        let refused = collector.requests()[0].content.spans().len() as u64;
        assert!(refused > 0 && refused < outcome.produced);
        assert_eq!((outcome.lost("refused"), outcome.delivery.lost()), (refused, refused), "{outcome:?}");
        assert_eq!(collector.spans().len() as u64, outcome.delivery.sent);
    }
}

#[test]
fn what_a_collector_rejects_is_counted() {
    for protocol in BOTH {
        let collector = Collector::new(protocol, None);
        collector.at_first(Behaviour::TakePart(3, "three were too old"));
        let outcome = train(otlp(protocol, &collector.address()));
        assert_eq!((outcome.lost("rejected"), outcome.delivery.lost()), (3, 3), "{outcome:?}");
        assert!(outcome.problem().contains("three were too old"), "{outcome:?}");
        // More than there was, less than nothing.
        collector.behave(Behaviour::TakePart(i64::MAX, ""));
        let outcome = train(otlp(protocol, &collector.address()));
        assert_eq!(outcome.lost("rejected"), outcome.produced, "{outcome:?}");
        collector.behave(Behaviour::TakePart(-7, ""));
        assert_eq!(train(otlp(protocol, &collector.address())).delivery.lost(), 0);
    }
}

#[test]
fn an_answer_that_makes_no_sense_is_an_answer() {
    for protocol in BOTH {
        let collector = Collector::new(protocol, None);
        collector.behave(Behaviour::Garbage);
        assert_all_arrived(&collector, &train(otlp(protocol, &collector.address())));
    }
}

#[test]
fn a_collector_that_goes_and_comes_back_gets_everything() {
    for protocol in BOTH {
        let mut collector = Collector::new(protocol, None);
        let outcome = train_with(otlp(protocol, &collector.address()), |step| match step {
            3 => {
                eventually("the first requests", || (collector.requests().len() >= 2).then_some(()));
                collector.go();
            }
            7 => {
                collector.hang_up();
                collector.come_back();
            }
            _ => {}
        });
        // The first requests may have been taken with nobody left to say so.
        assert_all_arrived_at_least_once(&collector, &outcome);
        assert!(!outcome.problem().is_empty(), "{outcome:?}");
    }
}

#[test]
fn what_does_not_fit_the_buffer_is_counted() {
    for protocol in BOTH {
        let collector = Collector::new(protocol, None);
        let outcome = train(otlp(protocol, &collector.address()).buffer(16));
        assert_eq!(outcome.lost("no_room"), outcome.produced, "{outcome:?}");
        // Room for one, which nobody takes.
        collector.behave(Behaviour::Silent);
        let outcome = train(otlp(protocol, &collector.address()).buffer(4 << 10).finish_within(SOON));
        let (no_room, too_late) = (outcome.lost("no_room"), outcome.lost("too_late"));
        assert!(no_room > 0 && too_late > 0 && no_room + too_late == outcome.produced, "{outcome:?}");
    }
}

#[test]
fn nothing_goes_where_a_collector_sends_it() {
    for status in [301, 302, 303, 307, 308] {
        let (collector, other) = (Collector::http(), Collector::http());
        collector.behave(Behaviour::Redirect(status, format!("{}/v1/traces", other.address())));
        let outcome = train(otlp(Protocol::Http, &collector.address()).header("x-token", "hunter2"));
        assert_eq!(outcome.lost("refused"), outcome.produced, "{outcome:?}");
        assert!(outcome.problem().contains(&status.to_string()), "{outcome:?}");
        assert!(other.requests().is_empty());
    }
}

#[test]
fn a_certificate_is_checked() {
    for protocol in BOTH {
        let (ours, others) = (Arc::new(Certificates::new()), Certificates::new());
        let collector = Collector::new(protocol, Some(&ours));
        let known = train(otlp(protocol, &collector.address()).certificate(ours.authority()));
        assert_all_arrived(&collector, &known);
        // Nobody's, and another's.
        let to = || otlp(protocol, &collector.address());
        train_in_vain(to, "invalid peer certificate");
        train_in_vain(|| to().certificate(others.authority()), "invalid peer certificate");
        // A collector without, where there should be one with.
        let plain = Collector::new(protocol, None);
        train_in_vain(|| otlp(protocol, &plain.address().replace("http:", "https:")), "");
    }
}

#[test]
fn a_client_shows_its_certificate() {
    for protocol in BOTH {
        let ours = Arc::new(Certificates::asking_clients());
        let collector = Collector::new(protocol, Some(&ours));
        let to = || otlp(protocol, &collector.address()).certificate(ours.authority());
        let shown = train(to().client_certificate(ours.client(), ours.client_key()));
        assert_all_arrived(&collector, &shown);
        train_in_vain(to, "");
    }
}

#[test]
fn files_that_are_no_certificates_are_said() {
    let (ours, others) = (Certificates::new(), Certificates::new());
    let missing = ours.file("missing");
    for protocol in BOTH {
        let to = || otlp(protocol, "https://localhost:1");
        let said = |otlp: Otlp, words: &str| {
            let said = refused_to_start(otlp);
            assert!(said.contains(words), "{said}");
        };
        said(to().certificate(&missing), "cannot read");
        said(to().certificate(ours.client_key()), "there is no certificate in");
        said(to().client_certificate(ours.client(), &missing), "cannot read");
        said(to().client_certificate(ours.client(), ours.client()), "there is no key in");
        said(to().client_certificate(ours.client(), others.client_key()), "do not go together");
        // Without TLS, they are of no interest.
        let collector = Collector::new(protocol, None);
        assert_all_arrived(&collector, &train(otlp(protocol, &collector.address()).certificate(&missing)));
    }
}

#[test]
fn it_works_in_a_program_with_tokio() {
    use tokio::runtime::Builder;
    let alone = || Builder::new_current_thread().enable_all().build().unwrap();
    let several = || Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for protocol in BOTH {
        for runtime in [alone(), several()] {
            let collector = Collector::new(protocol, None);
            // In the program's main function.
            let outcome = runtime.block_on(async { train(otlp(protocol, &collector.address())) });
            assert_all_arrived(&collector, &outcome);
            // In a task.
            let collector = Collector::new(protocol, None);
            let otlp = otlp(protocol, &collector.address());
            let outcome = runtime.block_on(runtime.spawn(async { train(otlp) })).unwrap();
            assert_all_arrived(&collector, &outcome);
        }
        // Where nobody gets what is sent, and everything is dropped in the midst of it.
        let runtime = alone();
        let outcome = runtime.block_on(async { train(otlp(protocol, &nowhere()).finish_within(SOON)) });
        assert_eq!(outcome.delivery.sent, 0);
    }
}

/// A program for the test below.
#[test]
fn train_as_the_environment_says() {
    if env::var_os("KERNSPAN_TEST_TRAINS").is_some() {
        train(Otlp::from_env().metrics(false).timeout(PATIENCE).finish_within(PATIENCE));
    }
}

#[test]
fn the_environment_says_where_to() {
    for (protocol, name) in [(Protocol::Http, "http/protobuf"), (Protocol::Grpc, "grpc")] {
        let ours = Arc::new(Certificates::asking_clients());
        let collector = Collector::new(protocol, Some(&ours));
        let (ca, client, key) = (ours.authority(), ours.client(), ours.client_key());
        let address = collector.address();
        let variables: [(&str, &OsStr); 9] = [
            ("KERNSPAN_TEST_TRAINS", "1".as_ref()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", name.as_ref()),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", address.as_ref()),
            ("OTEL_EXPORTER_OTLP_HEADERS", "X-Token=two%20words,x-more=1".as_ref()),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip".as_ref()),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.as_ref()),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", client.as_ref()),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", key.as_ref()),
            // Nobody is there; and nobody is asked on the way to this machine.
            ("http_proxy", "http://127.0.0.1:1".as_ref()),
        ];
        child::run("transport::train_as_the_environment_says", &variables);
        assert!(!collector.spans().is_empty());
        for request in collector.requests() {
            assert_eq!([&*request.headers["x-token"], &*request.headers["x-more"]], ["two words", "1"]);
            let encoding = if protocol == Protocol::Http { "content-encoding" } else { "grpc-encoding" };
            assert_eq!(request.headers[encoding], "gzip");
        }
    }
}
