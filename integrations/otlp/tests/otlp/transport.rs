//! The way of spans to a collector, over HTTP and gRPC: one that works, and one that is away, slow, refuses, or takes a
//! part.

use crate::{
    collector::{Behaviour, Collector, Protocol, nowhere},
    support::eventually,
    training::{
        BOTH, SOON, assert_all_arrived, assert_all_arrived_at_least_once, otlp, refused_to_start, train, train_in_vain,
        train_with,
    },
};
use std::time::Duration;

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
        assert!(said.contains("invalid header name"), "{said}");
        let said = with_header("x-token", "hunter2\n");
        assert!(said.contains("invalid value for header `x-token`"), "{said}");
    }
    let said = refused_to_start(otlp(Protocol::Grpc, "http://localhost:1").header("trace-bin", "hunter2"));
    assert!(said.contains("trace-bin"), "{said}");
}

#[test]
fn nothing_that_listens_costs_spans_only() {
    for protocol in BOTH {
        // The program does not wait for the time to finish, which is long here.
        let outcome = train(otlp(protocol, &nowhere()));
        assert!(outcome.problem().to_lowercase().contains("connection refused"), "{outcome:?}");
        assert_eq!(outcome.lost("unreachable"), outcome.produced, "{outcome:?}");
    }
}

#[test]
fn a_collector_that_never_answers_costs_spans_only() {
    for protocol in BOTH {
        let collector = Collector::new(protocol, None);
        collector.behave(Behaviour::Silent);
        let patient = train(otlp(protocol, &collector.address()).finish_within(SOON));
        assert_eq!(patient.lost("too_late"), patient.produced, "{patient:?}");
        let impatient = || otlp(protocol, &collector.address()).answer_within(Duration::from_millis(100));
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
        // More spans than were sent, and fewer than none.
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
        // The answers to the first requests may have been lost.
        assert_all_arrived_at_least_once(&collector, &outcome);
        assert!(!outcome.problem().is_empty(), "{outcome:?}");
    }
}

#[test]
fn what_does_not_fit_the_buffer_is_counted() {
    for protocol in BOTH {
        let collector = Collector::new(protocol, None);
        let outcome = train(otlp(protocol, &collector.address()).buffer_bytes(16));
        assert_eq!(outcome.lost("no_room"), outcome.produced, "{outcome:?}");
        // Room for one request, which is never answered.
        collector.behave(Behaviour::Silent);
        let outcome = train(otlp(protocol, &collector.address()).buffer_bytes(4 << 10).finish_within(SOON));
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
fn it_works_in_a_program_with_tokio() {
    use tokio::runtime::Builder;
    let alone = || Builder::new_current_thread().enable_all().build().unwrap();
    let several = || Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for protocol in BOTH {
        for runtime in [alone(), several()] {
            let collector = Collector::new(protocol, None);
            // In the main function.
            let outcome = runtime.block_on(async { train(otlp(protocol, &collector.address())) });
            assert_all_arrived(&collector, &outcome);
            // In a task.
            let collector = Collector::new(protocol, None);
            let otlp = otlp(protocol, &collector.address());
            let outcome = runtime.block_on(runtime.spawn(async { train(otlp) })).unwrap();
            assert_all_arrived(&collector, &outcome);
        }
        // Without a collector, the runtime is dropped while requests wait.
        let runtime = alone();
        let outcome = runtime.block_on(async { train(otlp(protocol, &nowhere()).finish_within(SOON)) });
        assert_eq!(outcome.delivery.sent, 0);
    }
}
