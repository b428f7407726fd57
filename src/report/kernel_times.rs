//! GPU time by kernel and shape, over all windows.

use super::{
    interner::{Interner, TextId},
    limits,
    mean_occupancy::MeanOccupancy,
    shapes::{Shapes, ShapesId, argument_shapes},
};
use crate::trace::{Span, Trace, Work};
use rustc_hash::FxHashMap;
use std::{fmt::Write, time::Duration};

/// The GPU time of all windows, by the name of the work and the shapes of the operation that launched it.
///
/// A window may have a million pieces of work. For each, only the name and the tally are looked up; shapes are written
/// as text once for each span that launched any work.
#[derive(Debug)]
pub(super) struct KernelTimes {
    names: Interner,
    shapes: Interner,
    tallies: FxHashMap<TallyKey, KernelTally>,
    /// The number of tallies that have shapes.
    shaped: usize,
}

/// The identity of a tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TallyKey {
    /// `None` if there were too many names.
    name: Option<TextId>,
    /// `None` if they are not known, or if there were too many.
    shapes: Option<ShapesId>,
}

/// Times and counts, added up over kernels, copies or fills of one name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KernelTally {
    pub(super) calls: u64,
    pub(super) total: Duration,
    /// The sum of the squares of the times, in square nanoseconds.
    pub(super) squares: u128,
    pub(super) shortest: Option<Duration>,
    pub(super) longest: Duration,
    pub(super) occupancy: MeanOccupancy,
    /// The most registers of a thread; `None` for copies and fills.
    pub(super) registers: Option<u16>,
    pub(super) bytes: u64,
}

/// A cache of the shapes that apply to each span. The outer `None` is a span that was not looked up yet.
struct SpanShapes(Vec<Option<Option<ShapesId>>>);

impl Default for KernelTimes {
    fn default() -> Self {
        let (names, shapes) = (Interner::new(limits::NAMES), Interner::new(limits::NAMES));
        Self { names, shapes, tallies: FxHashMap::default(), shaped: 0 }
    }
}

impl KernelTimes {
    /// Adds the GPU work of a window.
    pub(super) fn add(&mut self, trace: &Trace) {
        if trace.work().len() == 0 {
            return;
        }
        let mut span_shapes = SpanShapes(vec![None; trace.spans().len()]);
        let mut text = String::new();
        for work in trace.work() {
            let name = match work.kernel() {
                Some(kernel) => self.names.intern(&kernel.name),
                None => {
                    text.clear();
                    // Writing to a string cannot fail.
                    let _ = write!(text, "{}", work.name());
                    self.names.intern(&text)
                }
            };
            // Work past the limit of names is one row, whatever its shapes.
            let shapes = name.and(work.span()).and_then(|span| span_shapes.of(span, &mut self.shapes));
            self.tally(TallyKey { name, shapes }).add_work(trace, work);
        }
    }

    /// Returns the tally with this key. It has no shapes if there are too many tallies with shapes already.
    fn tally(&mut self, mut key: TallyKey) -> &mut KernelTally {
        if key.shapes.is_some() && !self.tallies.contains_key(&key) {
            if self.shaped < limits::NAMES {
                self.shaped += 1;
            } else {
                key.shapes = None;
            }
        }
        self.tallies.entry(key).or_default()
    }

    /// Returns whether there was no GPU work.
    pub(super) fn is_empty(&self) -> bool {
        self.tallies.is_empty()
    }

    /// Returns the name, the shapes and the tally of all work, in no order. The name is `None` past the limit of names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Option<&str>, Option<Shapes<'_>>, &KernelTally)> {
        self.tallies.iter().map(|(key, tally)| {
            let name = key.name.map(|name| self.names.get(name));
            (name, key.shapes.map(|shapes| shapes.resolve(&self.shapes)), tally)
        })
    }
}

impl SpanShapes {
    /// Returns the shapes of the innermost span, from this one outwards, that states any.
    fn of(&mut self, span: Span<'_>, interner: &mut Interner) -> Option<ShapesId> {
        let (mut shapes, mut unknown) = (None, 0);
        for span in span.stack() {
            if let Some(known) = self.0[span.id().index()] {
                shapes = known;
                break;
            }
            unknown += 1;
            if let Some(arguments) = argument_shapes(span.fields()) {
                shapes = ShapesId::intern(&arguments, span.fields().op().gemm(), interner);
                break;
            }
        }
        for span in span.stack().take(unknown) {
            self.0[span.id().index()] = Some(shapes);
        }
        shapes
    }
}

impl KernelTally {
    fn add_work(&mut self, trace: &Trace, work: Work<'_>) {
        let time = work.duration();
        self.calls += 1;
        self.total += time;
        self.squares = self.squares.saturating_add(square(time));
        self.shortest = Some(self.shortest.map_or(time, |shortest| shortest.min(time)));
        self.longest = self.longest.max(time);
        self.occupancy.add_work(trace, work);
        self.registers = self.registers.max(work.kernel().map(|kernel| kernel.registers));
        self.bytes = self.bytes.saturating_add(work.bytes());
    }

    /// Adds another tally.
    pub(super) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.total += other.total;
        self.squares = self.squares.saturating_add(other.squares);
        self.shortest = self.shortest.into_iter().chain(other.shortest).min();
        self.longest = self.longest.max(other.longest);
        self.occupancy.add(&other.occupancy);
        self.registers = self.registers.max(other.registers);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Returns the standard deviation of a sample, by `calls - 1`; zero for a single run.
    pub(super) fn deviation(&self) -> Duration {
        // Integers, as the difference of two large sums of floating-point numbers would be mostly error.
        let spread = self.squares.saturating_mul(self.calls.into()).saturating_sub(square(self.total));
        let pairs = self.calls as f64 * self.calls.saturating_sub(1) as f64;
        if pairs > 0.0 { Duration::from_nanos((spread as f64 / pairs).sqrt().round() as u64) } else { Duration::ZERO }
    }
}

/// Returns the square of a duration's nanoseconds.
fn square(duration: Duration) -> u128 {
    duration.as_nanos().saturating_mul(duration.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::{KernelTally, square};
    use std::time::Duration;

    fn deviation(times: &[Duration]) -> Duration {
        let squares = times.iter().copied().map(square).sum();
        KernelTally { calls: times.len() as u64, total: times.iter().sum(), squares, ..KernelTally::default() }
            .deviation()
    }

    #[test]
    fn deviations_are_those_of_samples() {
        let nanos = Duration::from_nanos;
        // The root of 32 / 7.
        assert_eq!(deviation(&[9, 2, 4, 4, 4, 5, 5, 7].map(nanos)), nanos(2));
        assert_eq!((deviation(&[nanos(7)]), deviation(&[])), (nanos(0), nanos(0)));
        // Of long durations that differ little.
        let day = Duration::from_secs(86_400);
        assert_eq!(deviation(&[day, day + nanos(20)]), nanos(14));
    }
}
