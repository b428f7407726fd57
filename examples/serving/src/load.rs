//! A load generator. It sends requests at a constant rate, whether or not earlier ones have been answered, and times
//! each from the moment at which it was to be sent. It keeps every latency, so that its percentiles are exact, and
//! shares no code with the profiler.

use crate::service::INTENDED_START;
use serde_json::{Value, json};
use std::{
    io,
    time::{Duration, SystemTime},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// The tokens of a request.
const TOKENS: u64 = 24;
/// The tokens of the one request that is slow.
const SLOW: u64 = 8_000;

/// A load: so many requests a second, for so long.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) seconds: u64,
    pub(crate) per_second: u64,
}

impl Load {
    /// Sends the requests, the middle one of them slow. Returns how many were answered, and how long that took.
    pub(crate) async fn run(self, address: &str) -> Value {
        let count = self.seconds * self.per_second;
        let (start, unix) = (Instant::now(), SystemTime::now());
        let mut requests = JoinSet::new();
        let mut latencies = Vec::new();
        for number in 0..count {
            let due = Duration::from_nanos(number * 1_000_000_000 / self.per_second);
            sleep_until(start + due).await;
            let tokens = if number == count / 2 { SLOW } else { TOKENS };
            let since_1970 = (unix + due).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
            let prompt = format!("request {number:06}");
            let request = format!(
                "POST /complete/{tokens} HTTP/1.1\r\nhost: {address}\r\n{INTENDED_START}: {since_1970}\r\n\
                 content-length: {}\r\nconnection: close\r\n\r\n{prompt}",
                prompt.len(),
            );
            let address = address.to_owned();
            requests.spawn(async move {
                let is_answered = send(&address, &request).await.unwrap_or(false);
                is_answered.then(|| start.elapsed().saturating_sub(due))
            });
            while let Some(answered) = requests.try_join_next() {
                latencies.extend(answered.ok().flatten());
            }
        }
        while let Some(answered) = requests.join_next().await {
            latencies.extend(answered.ok().flatten());
        }
        latencies.sort_unstable();
        // The nearest rank, as wrk and oha have it.
        let percentile = |percent: f64| {
            let rank = (percent / 100.0 * latencies.len() as f64).ceil() as usize;
            latencies.get(rank.max(1) - 1).map(Duration::as_secs_f64)
        };
        json!({
            "sent": count,
            "answered": latencies.len(),
            "p50": percentile(50.0),
            "p90": percentile(90.0),
            "p95": percentile(95.0),
            "p99": percentile(99.0),
            "p99.9": percentile(99.9),
        })
    }
}

/// Sends a request and reads the answer. Returns whether it was a success.
async fn send(address: &str, request: &str) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200"))
}
