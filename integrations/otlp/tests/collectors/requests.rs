//! The requests of a service in Prometheus, and how the dashboard of `examples/otlp` shows them.

use crate::support::{PATIENCE, collectors::Prometheus, dashboard, eventually};
use kernspan::{
    Chrome, Profiler, Schedule,
    serving::{RequestKind, Slo},
    trace::Timestamp,
};
use kernspan_otlp::Otlp;
use std::{collections::BTreeMap, path::Path, time::Duration};
use tracing::{info, info_span};
use tracing_subscriber::prelude::*;

/// The queries of the rows about requests and service levels, by the titles of their panels.
fn queries() -> Vec<(String, String)> {
    let mut queries = dashboard::queries("chat-service");
    queries.retain(|(_, query)| ["kernspan_request_", "kernspan_slo_"].iter().any(|part| query.contains(part)));
    queries
}

/// Serves a request that fails if it is told to, and that has waited and generates tokens.
fn serve(route: &str, error: bool) {
    let intended = Timestamp::now().as_unix_nanos() - 30_000_000;
    let span = info_span!("chat", route, error, request.intended_start = intended, gen_ai.usage.input_tokens = 7);
    span.in_scope(|| {
        info!(request.tokens = 1);
        info!(request.tokens = 2);
    });
}

#[test]
#[ignore = "builds Prometheus: .ci/run consumers"]
fn the_dashboard_shows_the_requests_of_a_service() {
    let prometheus = Prometheus::start();
    let exporter = Otlp::from_env()
        .endpoint(prometheus.http())
        .service("chat-service")
        .traces(false)
        .metrics_every(Duration::from_millis(100))
        .answer_within(PATIENCE)
        .finish_within(PATIENCE);
    let folder = tempfile::tempdir().unwrap();
    let (layer, profiler) = Profiler::builder()
        .rank(0, 1)
        .export(Chrome::to_dir(folder.path()))
        .schedule(Schedule::manual())
        .request_on(RequestKind::new("chat").by("route"))
        // With a fifth bad, the shortest of its times, a minute, is at 14.4 times the budget after four seconds.
        .slo(Slo::success("chat", 99.9).window(Duration::from_secs(12 * 3600)))
        .slo(Slo::latency("chat", 50.0, Duration::from_secs(3600)).window(Duration::from_secs(86_400)))
        .export(exporter)
        .build()
        .unwrap();
    let queries = queries();
    assert_eq!(queries.len(), 15, "{queries:#?}");
    let shown = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let open = info_span!("chat", route = "/slow");
        let mut served = 0;
        // A rate needs two values that differ, so requests go on until every panel shows something.
        let shown = eventually("all panels", || {
            for _ in 0..20 {
                serve("/chat", served % 5 == 0);
                served += 1;
            }
            let shown = |(title, query): &(String, String)| {
                let values = prometheus.query(query);
                let is_shown = !values.is_empty() && values.iter().all(|sample| sample.value.is_finite());
                is_shown.then(|| ((title.clone(), query.clone()), values))
            };
            let shown = queries.iter().map(shown).collect::<Option<BTreeMap<_, _>>>()?;
            let mut alerts = shown.iter().filter(|((title, query), _)| title == "Alerts" && query.contains("active"));
            let is_alert = alerts.any(|(_, values)| values.iter().any(|sample| sample.value >= 1.0));
            (served >= 200 && is_alert).then_some(shown)
        });
        // The reading before may be from the middle of a request.
        let in_flight = &queries.iter().find(|(title, _)| title == "In flight").unwrap().1;
        eventually("the open request", || (prometheus.query(in_flight)[0].value == 1.0).then_some(()));
        drop(open);
        // A window has one of them, the slowest: its exemplar names the file of the window.
        profiler.start();
        let intended = Timestamp::now().as_unix_nanos() - 60_000_000_000;
        info_span!("chat", route = "/recorded", request.intended_start = intended).in_scope(|| ());
        profiler.stop();
        let in_folder = |value: &String| Path::new(value).starts_with(folder.path());
        eventually("the exemplar", || {
            let exemplars = prometheus.exemplars("kernspan_request_response_time_seconds_bucket");
            exemplars.iter().find(|one| one.value >= 60.0 && one.labels.values().any(in_folder)).map(drop)
        });
        shown
    });
    let report = profiler.finish().unwrap();
    let value = |title: &str, part: &str| {
        let mut found = shown.iter().filter(|((known, query), _)| known == title && query.contains(part));
        let (_, samples) = found.next().unwrap();
        samples.iter().map(|sample| (sample.labels.clone(), sample.value)).collect::<Vec<_>>()
    };
    let [(labels, rate)] = &value("Requests", "")[..] else { panic!("{shown:#?}") };
    assert_eq!((&*labels["kernspan_request_kind"], *rate > 0.0), ("chat", true));
    let one = |title, part| value(title, part)[0].1;
    assert!((one("Failures", "") - 0.2).abs() < 0.05, "{shown:#?}");
    // They waited 30 ms, which is between 20 and 50.
    assert!((0.02..=0.05).contains(&one("Waiting", "queue_time")), "{shown:#?}");
    let median = one("Request time", "0.5");
    assert!(median > 0.0 && median <= one("Request time", "0.99"), "{shown:#?}");
    assert_eq!(value("Tokens", "").len(), 2);

    // A fifth is bad: two hundred times what the first objective allows, and two fifths of what the second one does.
    let first = "99.9 % of `chat` without an error";
    let by_objective = |title, part| {
        let of =
            |(labels, value): &(BTreeMap<String, String>, f64)| (labels["kernspan_slo_objective"] == first, *value);
        let found: BTreeMap<_, _> = value(title, part).iter().map(of).collect();
        [found[&true], found[&false]]
    };
    let near = |found: [f64; 2], expected: [f64; 2]| {
        assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 0.2), "{found:?}");
    };
    near(by_objective("Good requests", ""), [0.8, 0.8]);
    let [left_of_first, left_of_second] = by_objective("Error budget left", "");
    near([left_of_first / 200.0, left_of_second], [-1.0, 0.6]);
    // Time before the run counts as good, so the shortest times burn fastest.
    let burn_rates = value("Burn rate", "");
    let highest = |is_first: bool| {
        let of = burn_rates.iter().filter(|(labels, _)| (labels["kernspan_slo_objective"] == first) == is_first);
        of.map(|(_, rate)| *rate).fold(0.0, f64::max)
    };
    assert_eq!(burn_rates.len(), 10);
    assert!(highest(true) > 14.4 && (0.0..0.5).contains(&highest(false)), "{burn_rates:?}");
    let [alerts_of_first, alerts_of_second] = by_objective("Alerts", "active");
    assert!(alerts_of_first >= 1.0 && alerts_of_second == 0.0, "{shown:#?}");

    // The last requests arrive with the end of the run, and nothing is lost.
    assert!(report.deliveries().iter().all(|delivery| delivery.lost() == 0), "{:?}", report.deliveries());
    let total = report.requests().kind("chat").unwrap().total.count() as f64;
    let counted = prometheus.query(r#"sum(kernspan_request_duration_seconds_count{service_name="chat-service"})"#);
    assert_eq!(counted[0].value, total);
    let services = prometheus.series("kernspan_otlp_lost_total");
    assert!(services.iter().any(|labels| labels["service_name"] == "chat-service"), "{services:?}");
}
