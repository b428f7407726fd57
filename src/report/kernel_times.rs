use super::{
    kernels::Kernels,
    measured::MeanOccupancy,
    op::{self, Op, OpKey},
    texts::{TextId, Texts},
};
use crate::trace::{Span, Trace, Work};
use rustc_hash::FxHashMap;
use std::{fmt::Write, time::Duration};

/// Every kind of GPU work, over all windows.
///
/// There may be a million pieces in a window, so for each its name and its tally are looked up and no more. Shapes are written as
/// text once for each span that launched anything.
#[derive(Debug)]
pub(super) struct KernelTimes {
    names: Texts,
    /// Shapes, and sizes of matrix products.
    shapes: Texts,
    tallies: FxHashMap<Key, Tally>,
    /// How many of the tallies are of a shape.
    shaped: usize,
}

/// What makes work the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// None if there were too many names.
    name: Option<TextId>,
    /// None if it is not known, or if there were too many shapes.
    op: Option<OpKey>,
}

/// What is added up of the work of one name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) calls: u64,
    pub(super) total: Duration,
    pub(super) shortest: Option<Duration>,
    pub(super) longest: Duration,
    pub(super) occupancy: MeanOccupancy,
    pub(super) registers: Option<u16>,
    pub(super) bytes: u64,
}

/// The operation of each span that was asked for, inherited from the spans around it.
struct OpsOfSpans(Vec<Option<Option<OpKey>>>);

impl Default for KernelTimes {
    fn default() -> Self {
        let (names, shapes) = (Texts::new(Kernels::NAMES), Texts::new(Kernels::NAMES));
        Self { names, shapes, tallies: FxHashMap::default(), shaped: 0 }
    }
}

impl KernelTimes {
    pub(super) fn add(&mut self, trace: &Trace) {
        if trace.work().len() == 0 {
            return;
        }
        let mut ops = OpsOfSpans(vec![None; trace.spans().len()]);
        let mut text = String::new();
        for work in trace.work() {
            let name = match work.kernel() {
                Some(kernel) => self.names.id(&kernel.name),
                None => {
                    text.clear();
                    // Writing to a string cannot fail.
                    let _ = write!(text, "{}", work.name());
                    self.names.id(&text)
                }
            };
            // The shapes of what has no name say nothing.
            let op = name.and(work.span()).and_then(|span| ops.of(span, &mut self.shapes));
            self.tally(Key { name, op }).add(trace, work);
        }
    }

    fn tally(&mut self, mut key: Key) -> &mut Tally {
        if key.op.is_some() && !self.tallies.contains_key(&key) {
            if self.shaped < Kernels::NAMES {
                self.shaped += 1;
            } else {
                key.op = None;
            }
        }
        self.tallies.entry(key).or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tallies.is_empty()
    }

    /// Names, if they are told apart, with the operations that the work was launched in, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Option<&str>, Option<Op<'_>>, &Tally)> {
        self.tallies.iter().map(|(key, tally)| {
            (key.name.map(|name| self.names.get(name)), key.op.map(|op| op.op(&self.shapes)), tally)
        })
    }
}

impl OpsOfSpans {
    /// The operation of the innermost span, from this one outwards, that says its shapes.
    fn of(&mut self, span: Span<'_>, shapes: &mut Texts) -> Option<OpKey> {
        let (mut op, mut unknown) = (None, 0);
        for span in span.stack() {
            if let Some(known) = self.0[span.id().index()] {
                op = known;
                break;
            }
            unknown += 1;
            if let Some(own) = op::shapes(span.fields()) {
                op = OpKey::new(&own, span.fields().op().gemm(), shapes);
                break;
            }
        }
        for span in span.stack().take(unknown) {
            self.0[span.id().index()] = Some(op);
        }
        op
    }
}

impl Tally {
    fn add(&mut self, trace: &Trace, work: Work<'_>) {
        let time = work.duration();
        self.calls += 1;
        self.total += time;
        self.shortest = Some(self.shortest.map_or(time, |shortest| shortest.min(time)));
        self.longest = self.longest.max(time);
        self.occupancy.add(trace, work);
        self.registers = self.registers.max(work.kernel().map(|kernel| kernel.registers));
        self.bytes = self.bytes.saturating_add(work.bytes());
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.calls += other.calls;
        self.total += other.total;
        self.shortest = self.shortest.into_iter().chain(other.shortest).min();
        self.longest = self.longest.max(other.longest);
        self.occupancy.join(&other.occupancy);
        self.registers = self.registers.max(other.registers);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::KernelTimes;
    use crate::{
        report::kernels::{KernelAverage, Kernels},
        trace::{Detail, Trace, sample},
    };
    use std::{sync::Arc, time::Duration};

    fn rename(trace: &mut Trace, from: &str, to: &str) {
        for work in &mut trace.work {
            if let Detail::Kernel(kernel) = &mut work.detail
                && (&*kernel.name == from || from == "*")
            {
                kernel.name = Arc::from(to);
            }
        }
    }

    fn seen(row: &KernelAverage) -> (&str, Option<&str>, Option<&str>, u64, u128) {
        (&row.name, row.shapes.as_deref(), row.gemm.as_deref(), row.calls, row.total.as_micros())
    }

    #[test]
    fn shapes_are_those_of_the_innermost_span_that_says_them() {
        let mut trace = sample::gpu_trace();
        // The first step, its `forward`, and its `backward`, which says no shapes; then the second `forward`.
        sample::say(&mut trace, 0, &[("op.shape.input", "[8]")]);
        let fields = [("op.shape.input", "[8, 4]"), ("op.gemm", "8x2x4"), ("op.shape.weight", "[4, 2]")];
        sample::say(&mut trace, 1, &fields);
        sample::say(&mut trace, 2, &[("op.gemm", "1x1x1"), ("op.flops", "7")]);
        sample::say(&mut trace, 4, &[("op.shape.input", "[9, 4]")]);
        let mut times = KernelTimes::default();
        times.add(&trace);
        let copy = "Memcpy HtoD (Pageable -> Device)";
        let rows = Kernels::new(&times).group_by_shape(true).rows();
        assert_eq!(
            rows.iter().map(seen).collect::<Vec<_>>(),
            [
                ("gemm", None, None, 1, 30),
                ("gemm", Some("[8]"), None, 1, 30),
                ("gemm", Some("[8, 4], [4, 2]"), Some("8x2x4"), 1, 20),
                ("gemm", Some("[9, 4]"), None, 1, 20),
                ("Memset (Device)", None, None, 1, 10),
                ("Memset (Device)", Some("[8]"), None, 1, 10),
                ("node", None, None, 1, 10),
                ("node", Some("[8]"), None, 1, 10),
                ("stray", None, None, 1, 10),
                (copy, None, None, 1, 4),
                (copy, Some("[8]"), None, 1, 4),
            ]
        );
        let rows = Kernels::new(&times).rows();
        assert_eq!((rows.len(), seen(&rows[0])), (5, ("gemm", None, None, 4, 100)));
    }

    #[test]
    fn names_are_bounded() {
        let mut times = KernelTimes::default();
        let mut trace = sample::gpu_trace();
        for name in 0..Kernels::NAMES + 20 {
            rename(&mut trace, "*", &format!("kernel {name}"));
            times.add(&trace);
        }
        let rows = Kernels::new(&times).limit(usize::MAX).rows();
        assert_eq!(rows.len(), Kernels::NAMES + 1);
        let others = rows.iter().find(|row| row.name == Kernels::OTHERS).unwrap();
        // Two names are of copies and fills.
        assert_eq!((others.calls, others.total), (22 * 7, 22 * Duration::from_micros(130)));
    }

    #[test]
    fn where_there_are_too_many_shapes_names_are_still_told_apart() {
        let mut times = KernelTimes::default();
        // Each turn has four names in spans of a new shape, and `stray` in none.
        let turns = Kernels::NAMES / 4 + 10;
        for turn in 0..turns {
            let mut trace = sample::gpu_trace();
            let shape = format!("[{turn}]");
            sample::say(&mut trace, 0, &[("op.shape.input", shape.as_str())]);
            sample::say(&mut trace, 3, &[("op.shape.input", shape.as_str())]);
            if turn == turns - 1 {
                rename(&mut trace, "gemm", "late");
            }
            times.add(&trace);
        }
        let rows = Kernels::new(&times).group_by_shape(true).limit(usize::MAX).rows();
        assert_eq!(rows.iter().filter(|row| row.shapes.is_some()).count(), Kernels::NAMES);
        let mut without: Vec<_> =
            rows.iter().filter(|row| row.shapes.is_none()).map(|row| (&*row.name, row.calls)).collect();
        without.sort_unstable();
        let copy = "Memcpy HtoD (Pageable -> Device)";
        let stray = turns as u64;
        assert_eq!(
            without,
            [(copy, 20), ("Memset (Device)", 20), ("gemm", 36), ("late", 4), ("node", 20), ("stray", stray)]
        );
        assert_eq!(Kernels::new(&times).rows().len(), 6);
    }
}
