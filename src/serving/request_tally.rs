//! The requests of a run, added up from what threads have noted.

use super::{
    RequestGpu, RequestGroup, RequestsOfKind,
    open_request::{Queue, TokenGap},
    request_labels::{GroupIndex, RequestLabels},
    request_shards::{EndedRequest, RequestNote, clock_nanos},
    slow_requests::SlowestRequests,
};
use crate::clock::Clock;
use std::time::Duration;

/// The requests of one kind, by group.
#[derive(Debug)]
pub(super) struct KindTally {
    /// By the index of the group; `None` for those that do not occur.
    groups: Vec<Option<Box<RequestGroup>>>,
    pub(super) in_flight: u64,
    peak_in_flight: u64,
    pub(super) slowest: SlowestRequests,
    pub(super) gpu: RequestGpu,
}

impl KindTally {
    pub(super) fn new(labels: &RequestLabels) -> Self {
        let groups = std::iter::repeat_with(|| None).take(labels.group_count()).collect();
        let (slowest, gpu) = (SlowestRequests::new(), RequestGpu::default());
        Self { groups, in_flight: 0, peak_in_flight: 0, slowest, gpu }
    }

    fn group(&mut self, index: GroupIndex, labels: &RequestLabels) -> Option<&mut RequestGroup> {
        let group = self.groups.get_mut(usize::from(index))?;
        Some(group.get_or_insert_with(|| {
            let (labels, is_other) = (labels.describe(index), labels.is_other(index));
            Box::new(RequestGroup { labels, is_other, ..RequestGroup::default() })
        }))
    }

    /// Sets the number of requests in flight.
    pub(super) fn set_in_flight(&mut self, in_flight: i64) {
        // A request may begin in a shard that has been read and end in one that has not.
        self.in_flight = u64::try_from(in_flight).unwrap_or(0);
        self.peak_in_flight = self.peak_in_flight.max(self.in_flight);
    }

    /// Adds a note.
    pub(super) fn add(&mut self, note: &RequestNote, labels: &RequestLabels, clock: &Clock) {
        match note {
            RequestNote::Ended(ended) => {
                if let Some(group) = self.group(ended.group, labels) {
                    group.add_ended(ended, clock);
                }
                self.slowest.add(ended, clock);
            }
            RequestNote::Tokens(_, group, gap) => {
                if let Some(group) = self.group(*group, labels) {
                    group.add_gap(*gap, clock);
                }
            }
        }
    }

    /// Returns the requests as programs read them.
    pub(super) fn requests(&self, name: &str, labels: &RequestLabels, elapsed: Duration) -> RequestsOfKind {
        let mut groups: Vec<_> = self.groups.iter().flatten().map(|group| (**group).clone()).collect();
        let mut total = RequestGroup::default();
        for group in &mut groups {
            group.rate = group.count() as f64 / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
            total.merge(group);
        }
        groups.sort_by(|a, b| (a.is_other, b.count(), &a.labels).cmp(&(b.is_other, a.count(), &b.labels)));
        RequestsOfKind {
            name: name.to_owned(),
            total,
            groups,
            in_flight: self.in_flight,
            peak_in_flight: self.peak_in_flight,
            slowest: self.slowest.to_vec(labels),
            gpu: self.gpu.clone(),
        }
    }
}

impl RequestGroup {
    fn add_ended(&mut self, ended: &EndedRequest, clock: &Clock) {
        let facts = &ended.facts;
        self.errors += u64::from(facts.is_error);
        self.latency.add_nanos(ended.latency(clock));
        match facts.queue {
            Queue::Unknown => {}
            Queue::Nanos(queue) => {
                self.queue.add_nanos(queue);
                self.response.add_nanos(ended.experienced(clock));
            }
            Queue::Implausible => self.implausible_starts += 1,
        }
        if facts.batch > 0 {
            self.batches = (self.batches.0 + 1, self.batches.1 + u64::from(facts.batch));
        }
        let (times, tokens) = (&facts.tokens, &mut self.tokens);
        tokens.input += u64::from(times.input);
        tokens.output += u64::from(times.output.max(times.reported));
        if let Some((first, at_first)) = times.first() {
            tokens.first.add_nanos(clock_nanos(first.0.saturating_sub(ended.start.0), clock));
            tokens.prefilled += u64::from(times.input);
            tokens.decoded.0 += u64::from(times.reported.saturating_sub(at_first));
            tokens.decoded.1 += clock.duration(times.last.0.saturating_sub(first.0));
        }
    }

    fn add_gap(&mut self, gap: TokenGap, clock: &Clock) {
        // As many as are seen one by one: a request that reports once at its end says little about each.
        const MOST: u32 = 1024;
        let each = clock_nanos(gap.ticks, clock) / u64::from(gap.tokens);
        (0..gap.tokens.min(MOST)).for_each(|_| self.tokens.between.add_nanos(each));
    }
}
