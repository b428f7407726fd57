//! A request that has begun and not ended, and what its fields and events say about it.

use super::{
    RequestKind,
    request_labels::{LabelIndex, RequestLabels},
};
use crate::{
    clock::Ticks,
    trace::{Timestamp, Value, convention},
};

/// An index into the kinds of requests.
pub(super) type KindIndex = u8;

/// A request whose span is open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OpenRequest {
    pub(super) kind: KindIndex,
    /// The names of the span's fields.
    pub(super) names: Option<&'static tracing::field::FieldSet>,
    pub(super) start: Ticks,
    pub(super) labels: [LabelIndex; RequestKind::MOST_FIELDS],
    pub(super) facts: RequestFacts,
}

/// What the fields and events of a request say about it, besides its labels.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestFacts {
    pub(super) is_error: bool,
    pub(super) queue: Queue,
    pub(super) tokens: TokenTimes,
    /// The number of requests that were computed together, as last reported; 0 if it was not.
    pub(super) batch: u32,
}

/// The time between the intended start of a request and its span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Queue {
    /// The request has no intended start.
    #[default]
    Unknown,
    Nanos(u64),
    /// The intended start is later than the start, or hours before it: the clocks differ, or one was set.
    Implausible,
}

/// The tokens that a request has generated. Threads keep these for every request, so the numbers are small ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TokenTimes {
    /// When the first tokens came, if any did.
    first: Ticks,
    /// When the last tokens came.
    pub(super) last: Ticks,
    /// How many came first; 0 if none came.
    at_first: u32,
    /// The number of tokens that events have reported.
    pub(super) reported: u32,
    /// The number of input tokens, by a field.
    pub(super) input: u32,
    /// The number of output tokens, by a field.
    pub(super) output: u32,
}

impl TokenTimes {
    /// Returns when the first tokens came, and how many these were.
    pub(super) fn first(&self) -> Option<(Ticks, u32)> {
        (self.at_first > 0).then_some((self.first, self.at_first))
    }
}

/// Tokens that came after others of the same request.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenGap {
    pub(super) ticks: u64,
    pub(super) tokens: u32,
}

impl Queue {
    /// The longest queue time that is believed: an hour. A longer one is rather a clock that was set.
    const LONGEST: u64 = 3_600_000_000_000;

    /// Returns the queue time of a request that was to start at `intended` and starts at `now`.
    pub(super) fn between(intended: Timestamp, now: Timestamp) -> Self {
        match now.as_unix_nanos().checked_sub(intended.as_unix_nanos()) {
            Some(nanos) if nanos <= Self::LONGEST => Self::Nanos(nanos),
            _ => Self::Implausible,
        }
    }
}

impl RequestFacts {
    /// Takes a field of the request's span.
    pub(super) fn take_field(&mut self, name: &str, value: &Value) {
        match name {
            convention::REQUEST_INTENDED_START => {
                if let Some(nanos) = value.as_u64() {
                    self.queue = Queue::between(Timestamp::from_unix_nanos(nanos), Timestamp::now());
                }
            }
            convention::REQUEST_INPUT_TOKENS => self.tokens.input = value.as_u64().map_or(self.tokens.input, small),
            convention::REQUEST_OUTPUT_TOKENS => self.tokens.output = value.as_u64().map_or(self.tokens.output, small),
            convention::REQUEST_BATCH_SIZE => self.set_batch(value),
            _ => self.is_error |= is_error(name, value),
        }
    }

    pub(super) fn set_batch(&mut self, value: &Value) {
        self.batch = value.as_u64().map_or(self.batch, small);
    }

    /// Notes so many new tokens. Returns their distance from the ones before, if there were any.
    pub(super) fn take_tokens(&mut self, tokens: u64, now: Ticks) -> Option<TokenGap> {
        let (tokens, times) = (small(tokens), &mut self.tokens);
        if tokens == 0 {
            return None;
        }
        let gap = times.first().map(|_| TokenGap { ticks: now.0.saturating_sub(times.last.0), tokens });
        if gap.is_none() {
            (times.first, times.at_first) = (now, tokens);
        }
        times.last = now;
        times.reported = times.reported.saturating_add(tokens);
        gap
    }
}

/// Returns a number, or the largest that is kept.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Whether a field says that its request has failed.
fn is_error(name: &str, value: &Value) -> bool {
    match name {
        convention::REQUEST_ERROR => match value {
            Value::Bool(error) => *error,
            Value::Str(text) => !text.is_empty(),
            _ => value.as_f64() != Some(0.0),
        },
        convention::OTEL_STATUS_CODE => value.as_str().is_some_and(|status| status.eq_ignore_ascii_case("error")),
        convention::HTTP_STATUS_CODE => value.as_u64().is_some_and(|status| (500..600).contains(&status)),
        _ => false,
    }
}

/// Whether an event with these fields may say something about a request.
#[inline]
pub(super) fn concerns_requests(names: &tracing::field::FieldSet) -> bool {
    names.iter().any(|field| {
        let name = field.name();
        matches!(name, convention::REQUEST_TOKENS | convention::REQUEST_BATCH_SIZE | convention::REQUEST_ERROR)
    })
}

impl OpenRequest {
    /// Takes the fields of the request's span.
    pub(super) fn take_fields<'a>(
        &mut self,
        labels: &RequestLabels,
        fields: impl Iterator<Item = (&'a str, &'a Value)>,
    ) {
        for (name, value) in fields {
            labels.set(&mut self.labels, name, value);
            self.facts.take_field(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Queue, RequestFacts};
    use crate::{
        clock::Ticks,
        trace::{Timestamp, Value},
    };

    fn is_error(name: &str, value: impl Into<Value>) -> bool {
        let mut facts = RequestFacts::default();
        facts.take_field(name, &value.into());
        facts.is_error
    }

    #[test]
    fn errors_are_recognised_by_common_conventions() {
        for (name, value) in [
            ("error", Value::from(true)),
            ("error", "no such model".into()),
            ("otel.status_code", "ERROR".into()),
            ("http.response.status_code", 503_u64.into()),
        ] {
            assert!(is_error(name, value.clone()), "{name} = {value}");
        }
        for (name, value) in [
            ("error", Value::from(false)),
            ("error", "".into()),
            ("error", 0_u64.into()),
            ("otel.status_code", "OK".into()),
            ("http.response.status_code", 404_u64.into()),
            ("errors", true.into()),
        ] {
            assert!(!is_error(name, value.clone()), "{name} = {value}");
        }
    }

    #[test]
    fn a_queue_time_is_believed_unless_a_clock_was_set() {
        let at = Timestamp::from_unix_nanos;
        let hour = 3_600_000_000_000;
        assert_eq!(Queue::between(at(2 * hour), at(2 * hour + 5)), Queue::Nanos(5));
        // The sender's clock is ahead, or ours was set back.
        assert_eq!(Queue::between(at(2 * hour + 1), at(2 * hour)), Queue::Implausible);
        // Ours was set forward, or the field is a number of seconds.
        assert_eq!(Queue::between(at(hour), at(2 * hour + 1)), Queue::Implausible);
    }

    #[test]
    fn tokens_have_a_distance_from_the_ones_before() {
        let mut facts = RequestFacts::default();
        assert!(facts.take_tokens(0, Ticks(50)).is_none());
        assert!(facts.tokens.first().is_none());
        assert!(facts.take_tokens(1, Ticks(100)).is_none());
        assert_eq!(facts.take_tokens(4, Ticks(160)).map(|gap| (gap.ticks, gap.tokens)), Some((60, 4)));
        // The cycle counters of two processors may differ.
        assert_eq!(facts.take_tokens(1, Ticks(150)).map(|gap| gap.ticks), Some(0));
        assert_eq!((facts.tokens.first(), facts.tokens.reported), (Some((Ticks(100), 1)), 6));
        assert!(facts.take_tokens(u64::MAX, Ticks(160)).is_some());
        assert_eq!(facts.tokens.reported, u32::MAX);
    }
}
