use super::{memory_peak::MemoryPeak, table};
use crate::trace::{Allocation, DeviceId, Trace};
use std::{collections::BTreeMap, fmt};

/// What was in the memory of each GPU when the most was in use, over the whole run; to be printed.
///
/// ```
/// # fn show(report: &kernspan::Report) {
/// for peak in report.memory().peaks() {
///     let largest = peak.owners.first().map_or("nothing", |owner| owner.name.as_str());
///     println!("GPU {}: {} bytes, most of them of {largest}", peak.device, peak.in_use);
/// }
/// println!("{}", report.memory().limit(20));
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MemoryPeaks<'a> {
    highest: &'a HighestPeaks,
    limit: usize,
    width: Option<usize>,
}

/// The highest peak of each device, over all windows.
#[derive(Debug, Default)]
pub(super) struct HighestPeaks(BTreeMap<DeviceId, MemoryPeak>);

impl HighestPeaks {
    pub(super) fn add(&mut self, trace: &Trace) {
        let mut highest: BTreeMap<DeviceId, (usize, Allocation<'_>)> = BTreeMap::new();
        for (place, allocation) in trace.allocations().enumerate() {
            let peak = highest.entry(allocation.device()).or_insert((place, allocation));
            if allocation.in_use() > peak.1.in_use() {
                *peak = (place, allocation);
            }
        }
        for (device, (place, moment)) in highest {
            // Who owns what is asked only where it will be kept.
            if self.get(device).is_none_or(|peak| peak.in_use < moment.in_use()) {
                self.0.insert(device, MemoryPeak::at(trace, place, moment));
            }
        }
    }

    pub(super) fn get(&self, device: DeviceId) -> Option<&MemoryPeak> {
        self.0.get(&device)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &MemoryPeak> {
        self.0.values()
    }
}

impl<'a> MemoryPeaks<'a> {
    /// Owners of a GPU's memory that are shown by default.
    pub const LIMIT: usize = 10;

    pub(super) fn new(highest: &'a HighestPeaks) -> Self {
        Self { highest, limit: Self::LIMIT, width: None }
    }

    /// How many owners of a GPU's memory to print at the most. By default, [`Self::LIMIT`].
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }

    /// How many columns the tables may take. By default, the width of the terminal, or 120 where there is none.
    #[must_use]
    pub fn width(mut self, columns: usize) -> Self {
        self.width = Some(columns);
        self
    }

    /// The peak of each GPU on which memory was allocated or freed, with all owners. Of several windows it is that of the highest.
    pub fn peaks(&self) -> impl ExactSizeIterator<Item = &'a MemoryPeak> {
        self.highest.iter()
    }
}

impl fmt::Display for MemoryPeaks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.peaks().len() == 0 {
            return writeln!(f, "no GPU memory was recorded");
        }
        let width = self.width.unwrap_or_else(table::terminal_width);
        self.peaks().try_for_each(|peak| peak.write_table(f, self.limit, width))
    }
}

#[cfg(test)]
mod tests {
    use super::{HighestPeaks, MemoryPeaks};
    use crate::trace::{DeviceId, Trace, sample::memory_trace};

    fn peaks(traces: &[Trace]) -> HighestPeaks {
        let mut peaks = HighestPeaks::default();
        traces.iter().for_each(|trace| peaks.add(trace));
        peaks
    }

    #[test]
    fn the_window_with_the_highest_peak_wins_device_by_device() {
        let mut windows = [10, 30, 20, 30].map(|bytes| memory_trace(&[(1, Some(bytes), bytes, Some(1))]));
        for (number, window) in windows.iter_mut().enumerate() {
            window.window = number as u32;
        }
        // The third has more on another device, at the same address.
        let mut other = windows[2].allocations[0].clone();
        (other.device, other.bytes, other.in_use, other.span) = (DeviceId::new(1), Some(50), 50, None);
        windows[2].allocations.push(other);
        let peaks = peaks(&windows);
        let seen: Vec<_> = peaks.iter().map(|peak| (peak.window, peak.to_string())).collect();
        let lines = [
            "GPU 0 memory at its peak: 30 B; most: forward 30 B",
            "GPU 1 memory at its peak: 50 B; most: [unattributed] 50 B",
        ];
        assert_eq!(seen, [(1, lines[0].to_owned()), (2, lines[1].to_owned())]);
    }

    #[test]
    fn a_table_shows_who_had_what() {
        const MB: u64 = 1 << 20;
        let peaks = peaks(&[memory_trace(&[
            (1, Some(20 * MB), 120 * MB, Some(1)),
            (2, Some(20 * MB), 140 * MB, Some(1)),
            (3, Some(5 * MB), 145 * MB, None),
            (4, Some(30 * MB), 175 * MB, Some(2)),
        ])]);
        assert_eq!(
            format!("\n{}", MemoryPeaks::new(&peaks).limit(2).width(120)),
            "
GPU 0 memory at its peak: 175.00 MB, 100.00 MB of it from before the window; most: forward 40.00 MB
-----------------------------  ----------  ---------  ----------  ----------------
Allocated by                   Inside       CUDA Mem  CUDA Mem %  # of Allocations
-----------------------------  ----------  ---------  ----------  ----------------
[allocated before the window]              100.00 MB      57.14%                --
forward                        train_step   40.00 MB      22.86%                 2
backward                       train_step   30.00 MB      17.14%                 1
-----------------------------  ----------  ---------  ----------  ----------------
1 more rows
"
        );
        assert_eq!(MemoryPeaks::new(&HighestPeaks::default()).to_string(), "no GPU memory was recorded\n");
    }
}
