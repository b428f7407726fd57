//! The encoding of metrics.

use super::{
    histogram::Histogram,
    instruments::{Instrument, Kind, TRACE_FILE},
};
use crate::{attributes::Attributes, run_trace::StepTrace};
use kernspan::{export::wire, trace::Timestamp};
use rustc_hash::FxHashMap;

/// `AGGREGATION_TEMPORALITY_DELTA`.
const DELTA: u64 = 1;
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u64 = 2;

/// The attributes of a point: names and values.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// The value of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    fn minus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Int(this), Self::Int(other)) => Self::Int(this.saturating_sub(other)),
            (Self::Float(this), Self::Float(other)) => Self::Float(this - other),
            // All points of a counter have the same type.
            (this, _) => this,
        }
    }
}

impl From<u64> for Number {
    /// A number that is too large for `i64` becomes the largest.
    fn from(number: u64) -> Self {
        Self::Int(number.try_into().unwrap_or(i64::MAX))
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

/// The last value of each counter, by metric and attributes. With delta temporality, the difference from it is sent.
#[derive(Debug, Default)]
pub(super) struct Sums {
    numbers: FxHashMap<PointKey, Number>,
    /// Those of histograms that are counted elsewhere since the start of the run.
    #[cfg(feature = "serving")]
    histograms: FxHashMap<PointKey, Histogram>,
}

/// The metric and the attributes of a point.
type PointKey = (&'static str, String);

/// The timestamps of points.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    /// The start of the run.
    pub(super) run: Timestamp,
    /// When metrics were last collected; before that, the start of the run.
    pub(super) last: Timestamp,
    pub(super) now: Timestamp,
    /// Whether counters and histograms start over each time.
    pub(super) delta: bool,
}

/// Encodes metrics as fields of a `ScopeMetrics` message.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    out: Vec<u8>,
    points: u64,
    interval: Interval,
    sums: &'a mut Sums,
}

/// Encodes the points of one metric.
#[derive(Debug)]
pub(super) struct Points<'a> {
    instrument: &'a Instrument,
    out: &'a mut Vec<u8>,
    points: u64,
    interval: Interval,
    sums: &'a mut Sums,
}

impl<'a> Writer<'a> {
    pub(super) fn new(interval: Interval, sums: &'a mut Sums) -> Self {
        Self { out: Vec::new(), points: 0, interval, sums }
    }

    /// Adds a metric, unless it has no points.
    pub(super) fn metric(&mut self, instrument: &Instrument, write: impl FnOnce(&mut Points<'_>)) {
        let (interval, mut body) = (self.interval, Vec::new());
        let mut points = Points { instrument, out: &mut body, points: 0, interval, sums: self.sums };
        write(&mut points);
        let count = points.points;
        if count == 0 {
            return;
        }
        self.points += count;
        let temporality = if interval.delta { DELTA } else { CUMULATIVE };
        let data = match instrument.kind {
            Kind::Gauge => 5,
            Kind::Counter => {
                wire::number(&mut body, 2, temporality);
                wire::number(&mut body, 3, 1);
                7
            }
            Kind::UpDownCounter => {
                wire::number(&mut body, 2, CUMULATIVE);
                7
            }
            Kind::Histogram => {
                wire::number(&mut body, 2, temporality);
                9
            }
        };
        wire::message(&mut self.out, 2, |out| {
            wire::bytes(out, 1, instrument.name.as_bytes());
            wire::bytes(out, 2, instrument.description.as_bytes());
            if !instrument.unit.is_empty() {
                wire::bytes(out, 3, instrument.unit.as_bytes());
            }
            wire::bytes(out, data, &body);
        });
    }

    /// Returns the encoded metrics and the number of their points.
    pub(super) fn finish(self) -> (Vec<u8>, u64) {
        (self.out, self.points)
    }
}

impl Points<'_> {
    /// Sets when the following values were read, if that was before the collection. Sums are those of the collection:
    /// with delta temporality, they begin at the last one.
    pub(super) fn read_at(&mut self, at: Timestamp) {
        if self.instrument.kind == Kind::Gauge {
            self.interval.now = at.min(self.interval.now);
        }
    }

    /// Adds a value, or a sum since the start of the run.
    pub(super) fn number(&mut self, labels: Labels<'_>, value: impl Into<Number>) {
        self.number_since(self.interval.run, labels, value);
    }

    /// Adds a sum since `origin`.
    pub(super) fn number_since(&mut self, origin: Timestamp, labels: Labels<'_>, value: impl Into<Number>) {
        let (mut start, mut value) = (Some(origin), value.into());
        match self.instrument.kind {
            Kind::Gauge => start = None,
            Kind::Counter if self.interval.delta => {
                if let Some(before) = self.sums.numbers.insert(self.key(labels), value) {
                    (start, value) = (Some(self.interval.last), value.minus(before));
                }
            }
            _ => {}
        }
        self.points += 1;
        wire::message(self.out, 1, |out| {
            if let Some(start) = start {
                wire::fixed64(out, 2, start.as_unix_nanos().to_le_bytes());
            }
            wire::fixed64(out, 3, self.interval.now.as_unix_nanos().to_le_bytes());
            match value {
                Number::Float(value) => wire::fixed64(out, 4, value.to_le_bytes()),
                Number::Int(value) => wire::fixed64(out, 6, value.to_le_bytes()),
            }
            write_labels(out, 7, labels);
        });
    }

    /// Adds a histogram, unless it is empty, and takes its exemplars. With delta temporality, it starts over.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, histogram: &mut Histogram) {
        self.write_histogram(labels, histogram);
        if self.interval.delta && histogram.count() > 0 {
            histogram.reset();
        }
    }

    /// Adds a histogram of all values since the start of the run, unless it is empty. With delta temporality, those
    /// since the last collection, and exemplars even if there are none.
    #[cfg(feature = "serving")]
    pub(super) fn histogram_of_run(&mut self, labels: Labels<'_>, mut histogram: Histogram) {
        if self.interval.delta && histogram.count() > 0 {
            let before = self.sums.histograms.insert(self.key(labels), histogram.clone());
            histogram = before.map_or_else(|| histogram.clone(), |before| histogram.since(&before));
        }
        self.write_histogram(labels, &mut histogram);
    }

    fn write_histogram(&mut self, labels: Labels<'_>, histogram: &mut Histogram) {
        let count = histogram.count();
        // A request's exemplar may come later than the count of the request.
        if count == 0 && !histogram.has_exemplars() {
            return;
        }
        self.points += 1;
        let Interval { run, last, now, delta } = self.interval;
        let start = if delta { last } else { run };
        wire::message(self.out, 1, |out| {
            wire::fixed64(out, 2, start.as_unix_nanos().to_le_bytes());
            wire::fixed64(out, 3, now.as_unix_nanos().to_le_bytes());
            wire::fixed64(out, 4, count.to_le_bytes());
            wire::fixed64(out, 5, histogram.sum.to_le_bytes());
            packed(out, 6, histogram.counts.iter().map(|count| count.to_le_bytes()));
            packed(out, 7, histogram.bounds.iter().map(|bound| bound.to_le_bytes()));
            for exemplar in histogram.take_exemplars() {
                wire::message(out, 8, |out| {
                    wire::fixed64(out, 2, exemplar.at.as_unix_nanos().to_le_bytes());
                    wire::fixed64(out, 3, exemplar.value.to_le_bytes());
                    if let Some(StepTrace { trace, root }) = exemplar.trace {
                        wire::bytes(out, 4, &root.to_bytes());
                        wire::bytes(out, 5, &trace.to_bytes());
                    }
                    if let Some(file) = &exemplar.file {
                        write_labels(out, 7, &[(TRACE_FILE, file)]);
                    }
                });
            }
            write_labels(out, 9, labels);
            for (field, value) in [(11, histogram.min), (12, histogram.max)] {
                if value.is_finite() {
                    wire::fixed64(out, field, value.to_le_bytes());
                }
            }
        });
    }

    fn key(&self, labels: Labels<'_>) -> PointKey {
        (self.instrument.name, labels.iter().flat_map(|(name, value)| [name, "\0", value, "\0"]).collect())
    }
}

fn write_labels(out: &mut Vec<u8>, field: u32, labels: Labels<'_>) {
    let mut attributes = Attributes::new(out, field);
    for (name, value) in labels {
        attributes.text(name, value);
    }
}

/// Writes a packed repeated field of numbers of eight bytes.
fn packed(out: &mut Vec<u8>, field: u32, numbers: impl ExactSizeIterator<Item = [u8; 8]>) {
    wire::message_head(out, field, 8 * numbers.len());
    numbers.for_each(|number| out.extend_from_slice(&number));
}
