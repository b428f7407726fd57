//! Logs of several processes, which are merged.

use crate::{
    of,
    support::{child, eventually},
};
use kernspan::{
    Profiler, Schedule,
    serving::{LatencyHistogram, RequestGroup, RequestKind, RequestLog},
    trace::Timestamp,
};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path, time::Duration};
use tracing::{info_span, subscriber::with_default};
use tracing_subscriber::prelude::*;

const RANKS: u32 = 3;
const REQUESTS: u32 = 400;
/// The variables of the processes: where the log is, and which rank a process is.
const LOG: &str = "KERNSPAN_TEST_LOG";
const RANK: &str = "KERNSPAN_TEST_RANK";

/// How long a client has waited for the answer: from a third of an hour to almost an hour, so that what the process
/// itself takes is small compared with the error of a histogram.
fn waited(rank: u32, request: u32) -> Duration {
    Duration::from_millis(1_200_000 + u64::from((request * RANKS + rank) * 7919 % 2_000_000))
}

/// Serves the requests of a rank, over several lines of the log, and prints the buckets of the run's histogram.
fn serve() {
    let variable = |name| std::env::var(name).unwrap();
    let (log, rank) = (variable(LOG), variable(RANK).parse().unwrap());
    let (layer, profiler) = Profiler::builder()
        .rank(rank, RANKS)
        .schedule(Schedule::manual())
        .request_on(RequestKind::new("request").by("route"))
        .request_log(RequestLog::to_file(&log).every(RequestLog::LEAST))
        .build()
        .unwrap();
    with_default(tracing_subscriber::registry().with(layer), || {
        for request in 0..REQUESTS {
            if request == REQUESTS / 2 {
                let count = |line: &Value| line["requests"][0]["total"]["latency"]["count"].as_u64();
                let counted = |line: &Value| line["rank"] == rank && count(line) > Some(0);
                eventually("a line", || lines(log.as_ref()).iter().any(counted).then_some(()));
            }
            let start = Timestamp::now().as_unix_nanos() - waited(rank, request).as_nanos() as u64;
            let route = if request % 4 == 0 { "/embed" } else { "/chat" };
            drop(info_span!("request", route, request.intended_start = start, error = request % 8 == 0));
        }
    });
    let report = profiler.finish().unwrap();
    for (nanos, count) in of(report.requests()).total.response.buckets() {
        println!("bucket {} {count}", nanos.as_nanos());
    }
}

fn lines(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap();
    // The last one may not be whole yet.
    text.split_inclusive('\n').filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn the_logs_of_all_ranks_merge_to_the_histogram_of_all_requests() {
    let name = "logs::the_logs_of_all_ranks_merge_to_the_histogram_of_all_requests";
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.jsonl");
    let ranks: Vec<_> = (0..RANKS)
        .map(|rank| child::program(name, &[(LOG, log.as_os_str()), (RANK, rank.to_string().as_ref())], serve))
        .collect();
    let mut expected = BTreeMap::<u128, u64>::new();
    for rank in ranks {
        let ended = rank.wait();
        assert!(ended.status.success(), "{ended:?}");
        for bucket in ended.stdout.lines().filter_map(|line| line.strip_prefix("bucket ")) {
            let (nanos, count) = bucket.split_once(' ').unwrap();
            *expected.entry(nanos.parse().unwrap()).or_default() += count.parse::<u64>().unwrap();
        }
    }

    let lines = lines(&log);
    let (mut total, mut routes) = (RequestGroup::default(), BTreeMap::<String, RequestGroup>::new());
    let mut lines_with_requests = [0; RANKS as usize];
    for line in &lines {
        let read = |group: &Value| serde_json::from_value::<RequestGroup>(group.clone()).unwrap();
        let kind = &line["requests"][0];
        let of_line = read(&kind["total"]);
        lines_with_requests[line["rank"].as_u64().unwrap() as usize] += u32::from(of_line.count() > 0);
        total.merge(&of_line);
        for group in kind["groups"].as_array().unwrap().iter().map(read) {
            routes.entry(group.labels[0].1.clone()).or_default().merge(&group);
        }
    }
    assert!(lines_with_requests.iter().all(|&lines| lines > 1), "{lines_with_requests:?}");

    let found = total.response.buckets().map(|(time, count)| (time.as_nanos(), count));
    assert!(found.eq(expected), "{:?}", total.response);
    let all = u64::from(RANKS * REQUESTS);
    assert_eq!((total.count(), total.response.count(), total.errors), (all, all, all / 8));
    let counts: Vec<_> = routes.iter().map(|(route, group)| (route.as_str(), group.count())).collect();
    assert_eq!(counts, [("/chat", all / 4 * 3), ("/embed", all / 4)]);

    let mut exact: Vec<_> =
        (0..RANKS).flat_map(|rank| (0..REQUESTS).map(move |request| waited(rank, request))).collect();
    exact.sort_unstable();
    for percent in LatencyHistogram::PERCENTILES {
        let rank = (percent / 100.0 * all as f64).ceil() as usize;
        let (exact, found) = (exact[rank - 1], total.response.percentile(percent).unwrap());
        assert!(found.abs_diff(exact) < exact.mul_f64(0.01), "p{percent}: {found:?} instead of {exact:?}");
    }
}
