//! The requests of a run, as reports and programs read them.

use super::{LatencyHistogram, ServiceLevel, SlowRequest};
use crate::analysis::RequestGpuTime;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The requests of a run so far, by kind: see [`Profiler::requests`](crate::Profiler::requests) and
/// [`Report::requests`](crate::Report::requests).
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Requests {
    /// The time since the profiler was built.
    pub elapsed: Duration,
    /// The kinds, in the order in which the builder was given them.
    pub kinds: Vec<RequestsOfKind>,
    /// The objectives, in the order in which the builder was given them.
    pub service_levels: Vec<ServiceLevel>,
}

/// The requests of one kind.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct RequestsOfKind {
    /// The name of their spans.
    pub name: String,
    /// All of them.
    pub total: RequestGroup,
    /// The requests by the values of the chosen fields, most requests first. One group if there are no such fields.
    pub groups: Vec<RequestGroup>,
    /// The number of requests whose span is open.
    pub in_flight: u64,
    /// The most that were in flight at one of 20 readings a second. A shorter burst may be missed.
    pub peak_in_flight: u64,
    /// The slowest requests, slowest first.
    pub slowest: Vec<SlowRequest>,
    /// The GPU time of those that were recorded.
    pub gpu: RequestGpu,
}

/// The GPU time of the requests that windows have recorded from beginning to end: see
/// [`Analysis::request_gpu_times`](crate::analysis::Analysis::request_gpu_times). Windows without GPU work do not
/// count.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct RequestGpu {
    /// The GPU time of a request. Its count is the number of recorded requests.
    pub time: LatencyHistogram,
    /// The part of the sum that was spent on requests alone.
    pub alone: Duration,
    /// The part of the sum that was spent on several requests at once, and was split evenly among them.
    pub shared: Duration,
}

/// Requests with the same labels. Those of a [`RequestLog`](super::RequestLog) can be read back and
/// [merged](Self::merge).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[non_exhaustive]
pub struct RequestGroup {
    /// The fields that requests are broken down by, and their values. Those for which there was no room have `other`.
    pub labels: Vec<(String, String)>,
    /// Whether this is the group of requests for which there was no room.
    pub is_other: bool,
    /// The requests that have ended per second: since the profiler was built, or in the time of a line of a log.
    pub rate: f64,
    /// The requests that failed.
    pub errors: u64,
    /// The time from the creation of the span to its close. Its count is the number of requests that have ended.
    pub latency: LatencyHistogram,
    /// The time from the intended start to the creation of the span, of requests that have an intended start.
    pub queue: LatencyHistogram,
    /// The time from the intended start to the close: what the client waits for.
    pub response: LatencyHistogram,
    /// The requests whose intended start is in the future or more than an hour in the past: a clock is wrong.
    pub implausible_starts: u64,
    /// The tokens that were generated.
    pub tokens: GeneratedTokens,
    /// The number of requests that say with how many others they were computed, and the sum of these batch sizes.
    pub batches: (u64, u64),
}

/// The tokens that requests have generated.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[non_exhaustive]
pub struct GeneratedTokens {
    /// The number of tokens that requests have read.
    pub input: u64,
    /// The number of tokens that requests have generated.
    pub output: u64,
    /// The time from the creation of a request's span to its first token.
    pub first: LatencyHistogram,
    /// The time between two tokens of a request. Tokens that came together share the time since the ones before.
    pub between: LatencyHistogram,
    /// The input tokens of requests that have generated any, for the rate of prefill.
    pub prefilled: u64,
    /// The tokens after the first ones, and the time that requests took to generate them.
    pub decoded: (u64, Duration),
}

impl Requests {
    /// Returns the requests whose spans have this name.
    pub fn kind(&self, name: &str) -> Option<&RequestsOfKind> {
        self.kinds.iter().find(|kind| kind.name == name)
    }

    /// Whether no request has begun.
    pub fn is_empty(&self) -> bool {
        !self.kinds.iter().any(RequestsOfKind::is_used)
    }
}

impl RequestsOfKind {
    /// Whether a request has begun.
    pub(crate) fn is_used(&self) -> bool {
        self.total.count() > 0 || self.in_flight > 0
    }

    /// Returns the requests with exactly these values, in the order of the chosen fields.
    ///
    /// ```
    /// # fn show(requests: &kernspan::serving::Requests) -> Option<()> {
    /// let chat = requests.kind("request")?.group(&["/chat"])?;
    /// println!("{:?}", chat.latency.percentile(99.0));
    /// # Some(())
    /// # }
    /// ```
    pub fn group(&self, values: &[&str]) -> Option<&RequestGroup> {
        self.groups.iter().find(|group| group.labels.iter().map(|(_, value)| value.as_str()).eq(values.iter().copied()))
    }
}

impl RequestGpu {
    /// Adds the requests of a window.
    pub(super) fn add(&mut self, times: &[RequestGpuTime]) {
        for time in times {
            self.time.add(time.total());
            self.alone = self.alone.saturating_add(time.alone);
            self.shared = self.shared.saturating_add(time.shared);
        }
    }

    /// Returns the share of the time that was spent on several requests at once, in percent; `None` without GPU time.
    pub fn shared_percent(&self) -> Option<f64> {
        let sum = self.time.sum();
        (!sum.is_zero()).then(|| 100.0 * self.shared.as_secs_f64() / sum.as_secs_f64())
    }
}

impl RequestGroup {
    /// Returns the number of requests that have ended.
    pub fn count(&self) -> u64 {
        self.latency.count()
    }

    /// Returns the share of requests that failed; `None` if none has ended.
    pub fn error_rate(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.errors as f64 / self.count() as f64)
    }

    /// Returns the response times if all requests have an intended start, and else the latencies.
    pub fn experienced(&self) -> &LatencyHistogram {
        if self.response.count() == self.count() { &self.response } else { &self.latency }
    }

    /// Returns the mean batch size; `None` if no request states one.
    pub fn mean_batch(&self) -> Option<f64> {
        let (count, sum) = self.batches;
        (count > 0).then(|| sum as f64 / count as f64)
    }

    /// Returns the requests since this group was a copy of `earlier`, this time ago.
    #[must_use]
    pub fn since(&self, earlier: &Self, time: Duration) -> Self {
        let latency = self.latency.since(&earlier.latency);
        Self {
            labels: self.labels.clone(),
            is_other: self.is_other,
            rate: rate(latency.count(), time).unwrap_or(0.0),
            errors: self.errors.saturating_sub(earlier.errors),
            latency,
            queue: self.queue.since(&earlier.queue),
            response: self.response.since(&earlier.response),
            implausible_starts: self.implausible_starts.saturating_sub(earlier.implausible_starts),
            tokens: self.tokens.since(&earlier.tokens),
            batches: (
                self.batches.0.saturating_sub(earlier.batches.0),
                self.batches.1.saturating_sub(earlier.batches.1),
            ),
        }
    }

    /// Adds the requests of another group with the same labels, such as another rank's. Their rates are added, which is
    /// right for the same time: for one after the other, divide the count by the time.
    pub fn merge(&mut self, other: &Self) {
        self.rate += other.rate;
        self.errors = self.errors.saturating_add(other.errors);
        self.latency.merge(&other.latency);
        self.queue.merge(&other.queue);
        self.response.merge(&other.response);
        self.implausible_starts = self.implausible_starts.saturating_add(other.implausible_starts);
        self.tokens.merge(&other.tokens);
        let ((count, sum), (more, more_sum)) = (self.batches, other.batches);
        self.batches = (count.saturating_add(more), sum.saturating_add(more_sum));
    }
}

impl GeneratedTokens {
    /// Returns the input tokens that were read per second until the first token came.
    pub fn prefill_rate(&self) -> Option<f64> {
        rate(self.prefilled, self.first.sum())
    }

    /// Returns the tokens that a request generated per second after its first ones.
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.decoded.0, self.decoded.1)
    }

    fn since(&self, earlier: &Self) -> Self {
        let (tokens, time) = earlier.decoded;
        Self {
            input: self.input.saturating_sub(earlier.input),
            output: self.output.saturating_sub(earlier.output),
            first: self.first.since(&earlier.first),
            between: self.between.since(&earlier.between),
            prefilled: self.prefilled.saturating_sub(earlier.prefilled),
            decoded: (self.decoded.0.saturating_sub(tokens), self.decoded.1.saturating_sub(time)),
        }
    }

    fn merge(&mut self, other: &Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.first.merge(&other.first);
        self.between.merge(&other.between);
        self.prefilled = self.prefilled.saturating_add(other.prefilled);
        let ((tokens, time), (more, more_time)) = (self.decoded, other.decoded);
        self.decoded = (tokens.saturating_add(more), time.saturating_add(more_time));
    }
}

fn rate(count: u64, time: Duration) -> Option<f64> {
    (count > 0 && !time.is_zero()).then(|| count as f64 / time.as_secs_f64())
}
