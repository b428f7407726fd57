//! What fields and events say about requests: labels, errors, queues, tokens.

use crate::{counts, of, served};
use kernspan::{serving::RequestKind, trace::Timestamp};
use std::{thread::sleep, time::Duration};
use tracing::{error, field::Empty, info, info_span};

#[test]
fn requests_are_broken_down_by_fields_recorded_early_or_late() {
    let kind = RequestKind::new("request").by("route").by("model");
    let (_, report) = served(
        |builder| builder.request_on(kind).request_on("health"),
        |_| {
            drop(info_span!("request", route = "/chat", model = "small"));
            drop(info_span!("request", model = %"small", route = ?"/chat"));
            let late = info_span!("request", route = Empty, model = 7);
            late.record("route", "/embed");
            drop(late);
            drop(info_span!("request", other = true));
            drop(info_span!("health", route = "/chat"));
        },
    );
    let requests = report.requests();
    let count = |values: &[&str]| of(requests).group(values).map(kernspan::serving::RequestGroup::count);
    // What `?` writes has quotes.
    assert_eq!(count(&["/chat", "small"]), Some(1));
    assert_eq!(count(&["\"/chat\"", "small"]), Some(1));
    assert_eq!(count(&["/embed", "7"]), Some(1));
    assert_eq!(count(&[]), Some(1));
    assert_eq!(of(requests).total.count(), 4);
    assert_eq!(requests.kind("health").unwrap().total.count(), 1);
    assert_eq!(requests.kind("health").unwrap().groups.len(), 1);
}

#[test]
fn new_labels_beyond_the_limit_are_counted_as_other() {
    const ROUTES: u64 = 1000;
    let (_, report) = served(
        |builder| builder.request_on(RequestKind::new("request").by("route").most_groups(5)),
        |_| (0..ROUTES).for_each(|user| drop(info_span!("request", route = format!("/users/{user}")))),
    );
    let kind = of(report.requests());
    assert_eq!((kind.groups.len(), kind.total.count()), (6, ROUTES));
    let other = kind.groups.last().unwrap();
    assert_eq!((other.is_other, other.count()), (true, ROUTES - 5));
    assert_eq!(other.labels, [("route".to_owned(), "other".to_owned())]);
    assert!(report.to_string().contains("other"), "{report}");
}

#[test]
fn requests_fail_by_fields_and_by_events_inside_them() {
    #[tracing::instrument(name = "request", err)]
    fn fails(text: &'static str) -> Result<(), &'static str> {
        if text.is_empty() { Ok(()) } else { Err(text) }
    }
    let (_, report) = served(
        |builder| builder.request_on("request"),
        |_| {
            let late = info_span!("request", otel.status_code = Empty, http.response.status_code = Empty);
            late.record("http.response.status_code", 500);
            drop(late);
            let _ = fails("no such model");
            info_span!("request").in_scope(|| error!(error = "given up", "failed"));
            // These do not.
            let _ = fails("");
            drop(info_span!("request", http.response.status_code = 404, error = false));
            info_span!("request").in_scope(|| info_span!("attempt").in_scope(|| error!(error = "retried")));
            info_span!("request").in_scope(|| error!("about another thing"));
        },
    );
    assert_eq!(counts(report.requests()), (7, 3, 0));
}

#[test]
fn an_intended_start_gives_queue_and_response_times() {
    const QUEUED: Duration = Duration::from_secs(20);
    let (_, report) = served(
        |builder| builder.request_on("request"),
        |_| {
            let now = || Timestamp::now().as_unix_nanos();
            let queued = QUEUED.as_nanos() as u64;
            drop(info_span!("request", request.intended_start = now() - queued));
            // The wall clock has been set since, or differs: none of these is believed, and none breaks anything.
            drop(info_span!("request", request.intended_start = now() + queued));
            drop(info_span!("request", request.intended_start = 7_u64));
            drop(info_span!("request", request.intended_start = u64::MAX));
            // Not a time at all.
            drop(info_span!("request", request.intended_start = -1));
            drop(info_span!("request"));
        },
    );
    let total = &of(report.requests()).total;
    assert_eq!((total.count(), total.queue.count(), total.response.count()), (6, 1, 1));
    assert_eq!(total.implausible_starts, 3);
    let (queue, response) = (total.queue.max().unwrap(), total.response.max().unwrap());
    assert!(queue >= QUEUED && response >= queue, "{queue:?}, {response:?}");
    assert!(total.latency.max().unwrap() < QUEUED);
    let text = report.to_string();
    assert!(text.contains("3 intended starts are in the future or over an hour ago"), "{text}");
}

#[test]
fn tokens_are_timed_from_events_at_any_depth() {
    const PAUSE: Duration = Duration::from_millis(5);
    let (_, report) = served(
        |builder| builder.request_on("request"),
        |_| {
            let generate = info_span!("request", gen_ai.usage.input_tokens = 100);
            generate.in_scope(|| {
                sleep(PAUSE);
                info_span!("decode").in_scope(|| info!(request.tokens = 1, request.batch_size = 8));
                for _ in 0..4 {
                    sleep(PAUSE);
                    info!(request.tokens = 2);
                }
            });
            drop(generate);
            // Only its sum is known.
            drop(info_span!("request", gen_ai.usage.output_tokens = 50, request.batch_size = 4));
            // Belongs to no request.
            info!(request.tokens = 1000, "outside");
        },
    );
    let total = &of(report.requests()).total;
    let tokens = &total.tokens;
    assert_eq!((tokens.input, tokens.output, tokens.prefilled), (100, 59, 100));
    assert_eq!((tokens.first.count(), tokens.between.count(), tokens.decoded.0), (1, 8, 8));
    // Sleeping takes at least as long, and the cycle counter's rate is known to a few hundred parts per million.
    let least = PAUSE.mul_f64(0.999);
    assert!(tokens.first.max().unwrap() >= least && tokens.decoded.1 >= 4 * least);
    assert!(tokens.between.percentile(1.0).unwrap() >= least.mul_f64(0.49));
    assert!(tokens.prefill_rate().unwrap() <= 100.0 / least.as_secs_f64());
    assert_eq!(total.mean_batch(), Some(6.0));
    let text = report.to_string();
    assert!(text.contains("first token: median") && text.contains("tokens a second"), "{text}");
}

#[test]
fn requests_are_in_the_printed_and_in_the_serialized_report() {
    let (_, report) = served(
        |builder| builder.request_on(RequestKind::new("request").by("route")),
        |_| (0..10).for_each(|_| drop(info_span!("request", route = "/chat"))),
    );
    let text = report.to_string();
    assert!(text.contains("10 requests `request`") && text.contains("/chat") && text.contains("p99.9"), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    let kind = &json["requests"]["kinds"][0];
    assert_eq!((&kind["name"], &kind["total"]["latency"]["count"]), (&"request".into(), &10.into()));
    assert_eq!(kind["groups"][0]["labels"][0][1], "/chat");
    let latency = &kind["total"]["latency"];
    assert!(latency["p50"].as_f64() <= latency["p99_9"].as_f64() && latency["p50"].as_f64() > Some(0.0));
}
