//! Metrics of requests and of service levels.

use super::{
    super::histogram::STEP_BOUNDS,
    DELTA, measured, metrics,
    received::{buckets, collected, histograms, numbers, of, point, points, temporality, texts},
    run, settings,
};
use crate::ids::IdKind;
use kernspan::{
    Profiler, Schedule,
    analysis::Analysis,
    serving::{RequestGroup, RequestKind, Requests, RequestsOfKind, Slo},
    trace::{
        Timestamp, TraceContext,
        sample::{at, gpu_trace},
    },
};
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Exemplar, HistogramDataPoint, Metric, exemplar};
use std::{collections::BTreeMap, time::Duration};
use tracing::{info, info_span};
use tracing_subscriber::prelude::*;

/// Requests of one kind, by routes: milliseconds, and how many failed.
fn requests(groups: &[(&str, &[u64], u64)]) -> Requests {
    let mut kind = RequestsOfKind::default();
    kind.name = "request".to_owned();
    for &(route, millis, errors) in groups {
        let mut group = RequestGroup::default();
        group.labels = vec![("route".to_owned(), route.to_owned())];
        group.latency.extend(millis.iter().map(|&millis| Duration::from_millis(millis)));
        group.errors = errors;
        kind.groups.push(group);
    }
    kind.in_flight = 3;
    let mut requests = Requests::default();
    requests.kinds.push(kind);
    requests
}

#[test]
fn groups_have_histograms_and_failures() {
    let mut metrics = metrics(None, &[]);
    measured(&mut metrics).requests = requests(&[("/chat", &[1, 30, 40, 3000], 2), ("/embed", &[7], 0)]);
    let found = collected(&mut metrics, 60, &[]);
    let [chat, embed] = histograms(&found["kernspan.request.duration"]) else { panic!("{found:?}") };
    assert_eq!([chat, embed].map(|point| texts(&point.attributes)), ["request /chat", "request /embed"]);
    let names: Vec<_> = chat.attributes.iter().map(|attribute| &*attribute.key).collect();
    assert_eq!(names, ["kernspan.request.kind", "route"]);
    // The sum and the maximum are exact; the least is not known.
    assert_eq!(buckets(chat, STEP_BOUNDS), [(0.001, 1), (0.05, 2), (5.0, 1)]);
    assert_eq!((chat.sum, chat.min, chat.max), (Some(3.071), None, Some(3.0)));
    assert_eq!(buckets(embed, STEP_BOUNDS), [(0.01, 1)]);
    assert_eq!(temporality(&found["kernspan.request.duration"]), AggregationTemporality::Cumulative);
    assert_eq!(
        (chat.start_time_unix_nano, chat.time_unix_nano),
        (at(0).as_unix_nanos(), at(60_000_000).as_unix_nanos())
    );
    assert_eq!(points(&found, "kernspan.request.failures"), of(&[("request /chat", 2.0), ("request /embed", 0.0)]));
    assert_eq!(points(&found, "kernspan.request.in_flight"), of(&[("request", 3.0)]));
    // Nobody says anything about tokens, intended starts or objectives.
    for name in ["tokens", "queue_time", "response_time", "time_to_first_token", "time_between_tokens"] {
        assert!(!found.contains_key(&format!("kernspan.request.{name}")), "{name}");
    }
    assert!(found.keys().all(|name| !name.starts_with("kernspan.slo")), "{found:?}");
}

#[test]
fn requests_without_room_are_told_from_those_whose_value_is_other() {
    let mut metrics = metrics(None, &[]);
    let mut requests = requests(&[("other", &[1], 0), ("other", &[2, 2], 0)]);
    requests.kinds[0].groups[1].is_other = true;
    measured(&mut metrics).requests = requests;
    let found = collected(&mut metrics, 60, &[]);
    let counts: Vec<_> = histograms(&found["kernspan.request.duration"])
        .iter()
        .map(|point| (texts(&point.attributes), point.count, point.attributes.last().unwrap().key.clone()))
        .collect();
    let expected = [("request other", 1, "route"), ("request other true", 2, "otel.metric.overflow")];
    assert_eq!(counts, expected.map(|(texts, count, last)| (texts.to_owned(), count, last.to_owned())));
}

#[test]
fn deltas_are_requests_since_the_last_collection() {
    let mut metrics = metrics(None, &[DELTA]);
    measured(&mut metrics).requests = requests(&[("/chat", &[1, 30], 1)]);
    collected(&mut metrics, 1, &[]);
    measured(&mut metrics).requests = requests(&[("/chat", &[1, 30, 30, 400], 2), ("/embed", &[7], 0)]);
    let found = collected(&mut metrics, 3, &[]);
    let [chat, embed] = histograms(&found["kernspan.request.duration"]) else { panic!("{found:?}") };
    assert_eq!(buckets(chat, STEP_BOUNDS), [(0.05, 1), (0.5, 1)]);
    assert!((chat.sum.unwrap() - 0.43).abs() < 1e-9, "{:?}", chat.sum);
    assert_eq!((chat.min, chat.max), (None, None));
    assert_eq!(buckets(embed, STEP_BOUNDS), [(0.01, 1)]);
    assert_eq!(chat.start_time_unix_nano, at(1_000_000).as_unix_nanos());
    assert_eq!(temporality(&found["kernspan.request.duration"]), AggregationTemporality::Delta);
    assert_eq!(temporality(&found["kernspan.request.in_flight"]), AggregationTemporality::Cumulative);
    assert_eq!(points(&found, "kernspan.request.failures"), of(&[("request /chat", 1.0), ("request /embed", 0.0)]));
    // Nothing has happened since.
    measured(&mut metrics).requests = requests(&[("/chat", &[1, 30, 30, 400], 2), ("/embed", &[7], 0)]);
    let found = collected(&mut metrics, 4, &[]);
    assert!(!found.contains_key("kernspan.request.duration"), "{found:?}");
    assert_eq!(points(&found, "kernspan.request.failures")[0].1, 0.0);
}

/// A run with a window that has two of three requests: one of `/chat`, whose client has waited for half a minute, and
/// one of `/embed`.
fn recorded() -> Requests {
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::manual())
        .request_on(RequestKind::new("request").by("route"))
        .build()
        .unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let early = Timestamp::now().as_unix_nanos() - 30_000_000_000;
        profiler.start();
        info_span!("request", route = "/chat", request.intended_start = early).in_scope(|| ());
        info_span!("request", route = "/embed").in_scope(|| ());
        profiler.stop();
        info_span!("request", route = "/later").in_scope(|| ());
    });
    profiler.finish().unwrap().requests().clone()
}

/// The exemplars of a metric, by the attributes of their points.
fn exemplars(found: &BTreeMap<String, Metric>, name: &str) -> Vec<(String, Exemplar)> {
    let points = found.get(name).into_iter().flat_map(histograms);
    let of_point = |point: &HistogramDataPoint| {
        let exemplars = point.exemplars.clone().into_iter();
        exemplars.map(|exemplar| (texts(&point.attributes), exemplar)).collect::<Vec<_>>()
    };
    points.flat_map(of_point).collect()
}

#[test]
fn recorded_requests_are_exemplars_if_their_window_is_sent() {
    // With delta temporality, even if no request has ended since.
    for variables in [&[][..], &[DELTA]] {
        check_exemplars(variables);
    }
}

fn check_exemplars(variables: &[(&str, &str)]) {
    let requests = recorded();
    let [chat, ..] = &requests.kinds[0].slowest[..] else { panic!("{requests:?}") };
    let span = chat.recorded.as_ref().unwrap();
    let mut metrics = metrics(None, variables);
    let mut collect = |second, add: bool| {
        if add {
            metrics.add_window(&Analysis::of(&gpu_trace()));
        }
        measured(&mut metrics).requests = requests.clone();
        collected(&mut metrics, second, &[])
    };
    assert_eq!(exemplars(&collect(1, false), "kernspan.request.duration"), []);
    let found = collect(2, true);
    let of_duration = exemplars(&found, "kernspan.request.duration");
    let routes: Vec<_> = of_duration.iter().map(|(route, _)| route.as_str()).collect();
    assert_eq!(routes, ["request /chat", "request /embed"]);
    let run = run(&settings(&[]));
    let trace = span.step.map_or_else(|| run.window(0), |step| run.step(step)).unwrap().trace;
    let (_, exemplar) = &of_duration[0];
    assert_eq!(exemplar.trace_id, trace.to_bytes());
    assert_eq!(exemplar.span_id, trace.span(IdKind::Span, span.span.index() as u64).to_bytes());
    assert_eq!(exemplar.value, Some(exemplar::Value::AsDouble(chat.latency.as_secs_f64())));
    assert_eq!(exemplar.time_unix_nano, (chat.start + chat.latency).as_unix_nanos());
    // Only one of them has an intended start.
    let of_response = exemplars(&found, "kernspan.request.response_time");
    let [(_, exemplar)] = &of_response[..] else { panic!("{of_response:?}") };
    assert_eq!(exemplar.value, Some(exemplar::Value::AsDouble(chat.time.as_secs_f64())));
    // Each is sent once.
    assert_eq!(exemplars(&collect(3, true), "kernspan.request.duration"), []);
}

#[test]
fn exemplars_have_the_ids_of_another_layer_and_the_files() {
    let mut requests = recorded();
    for request in &mut requests.kinds[0].slowest {
        let Some(recorded) = &mut request.recorded else { continue };
        let is_first = request.labels[0].1 == "/chat";
        recorded.context = TraceContext::new(7, if is_first { 8 } else { 9 }, is_first);
        recorded.files.extend((!is_first).then(|| "slow/a.pftrace".into()));
    }
    // None of these is in a trace of ours.
    for (variables, expected) in [
        (&[][..], 2),
        (&[("OTEL_TRACES_EXPORTER", "none"), DELTA], 2),
        (&[("OTEL_METRICS_EXEMPLAR_FILTER", "always_off")], 0),
    ] {
        let mut metrics = metrics(None, variables);
        measured(&mut metrics).requests = requests.clone();
        let found = exemplars(&collected(&mut metrics, 1, &[]), "kernspan.request.duration");
        assert_eq!(found.len(), expected, "{variables:?}");
        let [(_, foreign), (_, in_file)] = &found[..] else { continue };
        assert_eq!((foreign.trace_id.last(), foreign.span_id.last()), (Some(&7), Some(&8)));
        assert_eq!((in_file.trace_id.len(), in_file.span_id.len()), (0, 0));
        assert_eq!(texts(&in_file.filtered_attributes), "slow/a.pftrace");
        assert_eq!(in_file.filtered_attributes[0].key, "kernspan.trace.file");
    }
}

/// The requests of a run: twenty, a quarter of which fail, and one with tokens.
fn served() -> Requests {
    let objective = || Slo::success("request", 90.0);
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::manual())
        .request_on("request")
        .request_on(RequestKind::new("chat").by("model"))
        // Given twice, as with two hooks; and one that differs in its window only.
        .slo(objective())
        .slo(objective())
        .slo(objective().window(Duration::from_secs(6 * 86_400)))
        .slo(Slo::latency("request", 50.0, Duration::from_secs(3600)))
        .build()
        .unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for number in 0..20 {
            info_span!("request", error = number % 4 == 0).in_scope(|| ());
        }
        let now = kernspan::trace::Timestamp::now().as_unix_nanos();
        let chat = info_span!(
            "chat",
            model = "small",
            gen_ai.usage.input_tokens = 100,
            request.intended_start = now - 1_000_000
        );
        chat.in_scope(|| {
            info!(request.tokens = 1);
            info!(request.tokens = 4);
        });
    });
    profiler.finish().unwrap().requests().clone()
}

#[test]
fn service_levels_have_budgets_and_burn_rates() {
    let mut requests = served();
    // As after days at this rate.
    for level in requests.service_levels.iter_mut().filter(|level| level.limit.is_none()) {
        level.burn_rates.iter_mut().for_each(|rate| (rate.long.1, rate.short.1) = (2.5, 2.5));
        level.burn_rates[2].alert = true;
        level.alerts = 1;
    }
    let mut metrics = metrics(None, &[]);
    measured(&mut metrics).requests = requests;
    let found = collected(&mut metrics, 60, &[]);
    let (six, month) =
        ("request 90 % of `request` without an error 6d", "request 90 % of `request` without an error 30d");
    let latency = "request 50 % of `request` within 3600 s 30d";
    let all = |name: &str| points(&found, name);
    let outcomes = all("kernspan.slo.requests");
    let counts: Vec<_> = outcomes.iter().map(|(text, count)| (text.rsplit_once(' ').unwrap(), *count)).collect();
    let expected = [latency, six, month].map(|level| [((level, "good"), 15.0), ((level, "bad"), 5.0)]);
    assert_eq!(counts, expected.concat());
    // A quarter is bad, where a tenth, or a half, may be.
    assert_eq!(all("kernspan.slo.alerts"), of(&[(latency, 0.0), (six, 1.0), (month, 1.0)]));
    assert_eq!(all("kernspan.slo.alerts.active"), of(&[(latency, 0.0), (six, 1.0), (month, 1.0)]));
    let rounded = |points: Vec<(String, f64)>| {
        points.into_iter().map(|(text, value)| (text, (value * 1e6).round() / 1e6)).collect::<Vec<_>>()
    };
    let left = rounded(all("kernspan.slo.error_budget.remaining"));
    assert_eq!(left, of(&[(latency, 0.5), (six, -1.5), (month, -1.5)]));
    let rates = rounded(all("kernspan.slo.burn_rate"));
    let of_month: Vec<_> = rates.iter().filter_map(|(text, rate)| Some((text.strip_prefix(month)?, *rate))).collect();
    assert_eq!(of_month, [(" 5m", 2.5), (" 30m", 2.5), (" 1h", 2.5), (" 6h", 2.5), (" 3d", 2.5)]);
    let of_six: Vec<_> = rates.iter().filter_map(|(text, _)| text.strip_prefix(six)).collect();
    assert_eq!(of_six, [" 1m", " 6m", " 12m", " 72m", " 864m"]);
}

#[test]
fn tokens_and_times_of_requests_are_sent() {
    let mut metrics = metrics(None, &[]);
    measured(&mut metrics).requests = served();
    let found = collected(&mut metrics, 60, &[]);
    assert_eq!(
        points(&found, "kernspan.request.tokens"),
        of(&[("chat input small", 100.0), ("chat output small", 5.0)])
    );
    let counts = |name: &str| {
        let points = histograms(&found[&format!("kernspan.request.{name}")]).iter();
        points.map(|point| (texts(&point.attributes), point.count)).collect::<Vec<_>>()
    };
    let chat = |count| [("chat small".to_owned(), count)];
    assert_eq!(counts("duration"), [("request".to_owned(), 20), ("chat small".to_owned(), 1)]);
    for (name, count) in
        [("queue_time", 1), ("response_time", 1), ("time_to_first_token", 1), ("time_between_tokens", 4)]
    {
        assert_eq!(counts(name), chat(count), "{name}");
    }
    assert_eq!(point(&found, "kernspan.step.number"), None);
    assert!(numbers(&found["kernspan.request.in_flight"]).len() == 2);
}
