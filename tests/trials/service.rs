//! A service on tokio's threads that answers requests, each of them a step.

use crate::{check, support::child};
use kernspan::{Collected, Profiler, Schedule, trace::Step};
use std::collections::BTreeSet;
use tokio::task::{JoinSet, yield_now};
use tracing::instrument;
use tracing_subscriber::prelude::*;

const REQUESTS: u64 = 20;

#[instrument]
async fn request(number: u64) -> u64 {
    let (page, other) = tokio::join!(load(number), load(number + 1));
    render(page + other).await
}

#[instrument]
async fn load(page: u64) -> u64 {
    query(page).await;
    page
}

#[instrument]
async fn query(page: u64) {
    for _ in 0..page % 3 {
        yield_now().await;
    }
}

#[instrument(skip_all)]
async fn render(page: u64) -> u64 {
    yield_now().await;
    page
}

/// Answers all requests on a runtime with several threads. Returns the sum of the answers.
fn serve() -> u64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    runtime.block_on(async {
        let requests: JoinSet<_> = (0..REQUESTS).map(request).collect();
        requests.join_all().await.into_iter().sum()
    })
}

#[test]
fn each_request_is_a_step() {
    child::alone("service::each_request_is_a_step", || {
        let collected = Collected::new();
        let (layer, profiler) = Profiler::builder().step_on("request").export(collected.clone()).build().unwrap();
        tracing_subscriber::registry().with(layer).init();
        assert_eq!(serve(), REQUESTS * REQUESTS);
        let report = profiler.finish().unwrap();
        let expected = [("load", 2 * REQUESTS), ("query", 2 * REQUESTS), ("render", REQUESTS), ("request", REQUESTS)];
        check(&report, &expected);
        let trace = collected.only();
        let ended = trace.steps().iter().filter(|step| !step.cut().end).count() as u64;
        assert_eq!(ended, REQUESTS);
        // Each request has its number, in each of its enters.
        let requests = trace.spans().filter(|span| span.name() == "request");
        let numbers: BTreeSet<_> = requests.map(|span| span.field("number").unwrap().to_string()).collect();
        assert_eq!(numbers.len() as u64, REQUESTS);
    });
}

#[test]
fn a_schedule_counts_requests() {
    child::alone("service::a_schedule_counts_requests", || {
        let collected = Collected::new();
        let schedule = Schedule::new().wait(5).active(5).repeat(2);
        let builder = Profiler::builder().schedule(schedule).step_on("request").export(collected.clone());
        let (layer, profiler) = builder.build().unwrap();
        tracing_subscriber::registry().with(layer).init();
        serve();
        let report = profiler.finish().unwrap();
        assert!(report.losses().is_empty() && report.hints().is_empty(), "{report}");
        let steps: Vec<Vec<_>> =
            collected.traces().iter().map(|trace| trace.steps().iter().map(Step::number).collect()).collect();
        assert_eq!(steps, [vec![5, 6, 7, 8, 9], vec![15, 16, 17, 18, 19]]);
    });
}
