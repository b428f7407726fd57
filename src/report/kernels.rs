use super::{
    measured::MeanOccupancy,
    table::{self, Table},
    units,
};
use crate::trace::{Trace, Work};
use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

/// GPU time by kernel over the whole run, with copies and fills of memory, the longest first; to be printed.
///
/// Beyond [`Kernels::NAMES`] names, what comes is one row, [`Kernels::OTHERS`].
///
/// ```
/// # fn show(report: &kernspan::Report) {
/// for kernel in report.kernels().limit(3).rows() {
///     println!("{} took {:.1} % of the GPU's time", kernel.name, kernel.percent);
/// }
/// println!("{}", report.kernels().limit(20));
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Kernels<'a> {
    times: &'a KernelTimes,
    limit: usize,
    width: Option<usize>,
}

/// One row: the kernels of one name, or the copies from one kind of memory to another.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KernelAverage {
    /// The kernel's name, or as `Memcpy HtoD (Pageable -> Device)`.
    pub name: String,
    /// How often it ran.
    pub calls: u64,
    /// The time it took, each piece by itself even where some ran at the same time.
    pub total: Duration,
    /// `total` in percent of the time of all GPU work.
    pub percent: f64,
    /// The mean time.
    pub average: Duration,
    /// The shortest time.
    pub shortest: Duration,
    /// The longest time.
    pub longest: Duration,
    /// The estimated [`Occupancy`](crate::Occupancy) in percent, a long run counting for more, if it is known.
    pub occupancy: Option<f64>,
    /// Registers of a thread, the most there were; none for copies.
    pub registers: Option<u16>,
    /// Bytes copied or set; 0 for kernels.
    pub bytes: u64,
    /// Bytes copied or set in a second, over all of `total`; none for kernels.
    pub bytes_per_second: Option<f64>,
}

/// What is added up of the work of one name.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    calls: u64,
    total: Duration,
    shortest: Option<Duration>,
    longest: Duration,
    occupancy: MeanOccupancy,
    registers: Option<u16>,
    bytes: u64,
}

/// Every kind of GPU work, over all windows.
#[derive(Debug, Default)]
pub(super) struct KernelTimes {
    tallies: HashMap<Arc<str>, Tally>,
}

impl KernelTimes {
    pub(super) fn add(&mut self, trace: &Trace) {
        for work in trace.work() {
            let mut name = match work.kernel() {
                Some(kernel) => Arc::clone(&kernel.name),
                None => Arc::from(work.name().to_string()),
            };
            if self.tallies.len() >= Kernels::NAMES && !self.tallies.contains_key(&name) {
                name = Arc::from(Kernels::OTHERS);
            }
            self.tallies.entry(name).or_default().add(trace, work);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tallies.is_empty()
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

    fn average(&self, name: &str, all: Duration) -> KernelAverage {
        let seconds = self.total.as_secs_f64();
        KernelAverage {
            name: name.to_owned(),
            calls: self.calls,
            total: self.total,
            percent: units::percent_of(self.total, all),
            average: self.total.div_f64(self.calls.max(1) as f64),
            shortest: self.shortest.unwrap_or_default(),
            longest: self.longest,
            occupancy: self.occupancy.percent(),
            registers: self.registers,
            bytes: self.bytes,
            bytes_per_second: (self.bytes > 0 && seconds > 0.0).then(|| self.bytes as f64 / seconds),
        }
    }
}

impl<'a> Kernels<'a> {
    /// Rows that are shown by default.
    pub const LIMIT: usize = 100;
    /// Names that are told apart.
    pub const NAMES: usize = 10_000;
    /// The name of the row of what came after [`Self::NAMES`] names.
    pub const OTHERS: &'static str = "[others]";

    pub(super) fn new(times: &'a KernelTimes) -> Self {
        Self { times, limit: Self::LIMIT, width: None }
    }

    /// How many rows to show at the most. By default, [`Self::LIMIT`].
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }

    /// How many columns the table may take. By default, the width of the terminal, or 120 where there is none.
    #[must_use]
    pub fn width(mut self, columns: usize) -> Self {
        self.width = Some(columns);
        self
    }

    /// The rows, the one that took longest first, limited.
    pub fn rows(&self) -> Vec<KernelAverage> {
        let tallies = &self.times.tallies;
        let all = tallies.values().map(|tally| tally.total).sum();
        let mut rows: Vec<_> = tallies.iter().map(|(name, tally)| tally.average(name, all)).collect();
        // Ties by name, so that the same run prints the same table.
        rows.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
        rows.truncate(self.limit);
        rows
    }
}

impl fmt::Display for Kernels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        if rows.is_empty() {
            return writeln!(f, "no GPU work was recorded");
        }
        let mut table = Table::new(&rows);
        table.text("Kernel", |row| row.name.clone());
        table.number("CUDA %", |row| units::percent(row.percent));
        table.number("CUDA total", |row| units::time(row.total));
        table.number("Average", |row| units::time(row.average));
        table.number("Shortest", |row| units::time(row.shortest)).spare(4);
        table.number("Longest", |row| units::time(row.longest)).spare(3);
        if rows.iter().any(|row| row.occupancy.is_some()) {
            table.number("Occupancy", |row| units::or_none(row.occupancy.map(units::percent)));
        }
        if rows.iter().any(|row| row.registers.is_some()) {
            table.number("Registers", |row| units::or_none(row.registers.map(|count| count.to_string()))).spare(2);
        }
        if rows.iter().any(|row| row.bytes > 0) {
            table.number("Bytes", |row| units::count(row.bytes)).spare(1);
            table.number("GB/s", |row| units::or_none(row.bytes_per_second.map(|rate| format!("{:.2}", rate / 1e9))));
        }
        table.number("# of Calls", |row| row.calls.to_string());
        let left_out = self.times.tallies.len() - rows.len();
        table.write(f, left_out, self.width.unwrap_or_else(table::terminal_width))
    }
}

#[cfg(test)]
mod tests {
    use super::{KernelTimes, Kernels};
    use crate::trace::{Detail, sample::gpu_trace};
    use std::{sync::Arc, time::Duration};

    #[test]
    fn work_of_a_name_is_a_row() {
        let mut times = KernelTimes::default();
        times.add(&gpu_trace());
        let rows = Kernels::new(&times).rows();
        let seen: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.calls, row.total.as_micros())).collect();
        assert_eq!(
            seen,
            [
                ("gemm", 4, 100),
                ("Memset (Device)", 2, 20),
                ("node", 2, 20),
                ("stray", 1, 10),
                ("Memcpy HtoD (Pageable -> Device)", 2, 8),
            ]
        );
        let (gemm, copy) = (&rows[0], &rows[4]);
        let micros = [gemm.average, gemm.shortest, gemm.longest].map(|time| time.as_micros());
        assert_eq!(micros, [25, 20, 30]);
        assert_eq!(format!("{:.3} {:.3}", gemm.percent, gemm.occupancy.unwrap()), "63.291 2.273");
        assert_eq!((gemm.registers, gemm.bytes, gemm.bytes_per_second), (Some(74), 0, None));
        assert_eq!((copy.registers, copy.bytes, copy.occupancy), (None, 8000, None));
        assert_eq!(copy.bytes_per_second.unwrap().round(), 1e9);
    }

    #[test]
    fn the_table_shows_what_is_known() {
        let mut times = KernelTimes::default();
        assert_eq!(Kernels::new(&times).to_string(), "no GPU work was recorded\n");
        times.add(&gpu_trace());
        assert_eq!(
            format!("\n{}", Kernels::new(&times).limit(3).width(140)),
            "
---------------  ------  ----------  --------  --------  --------  ---------  ---------  -----  ----  ----------
Kernel           CUDA %  CUDA total   Average  Shortest   Longest  Occupancy  Registers  Bytes  GB/s  # of Calls
---------------  ------  ----------  --------  --------  --------  ---------  ---------  -----  ----  ----------
gemm             63.29%   100.000µs  25.000µs  20.000µs  30.000µs      2.27%         74     --    --           4
Memset (Device)  12.66%    20.000µs  10.000µs  10.000µs  10.000µs         --         --    128  0.01           2
node             12.66%    20.000µs  10.000µs  10.000µs  10.000µs      2.27%         74     --    --           2
---------------  ------  ----------  --------  --------  --------  ---------  ---------  -----  ----  ----------
2 more rows
"
        );
    }

    #[test]
    fn names_are_bounded() {
        let mut times = KernelTimes::default();
        let mut trace = gpu_trace();
        for name in 0..Kernels::NAMES + 20 {
            for work in &mut trace.work {
                if let Detail::Kernel(kernel) = &mut work.detail {
                    kernel.name = Arc::from(format!("kernel {name}"));
                }
            }
            times.add(&trace);
        }
        let rows = Kernels::new(&times).limit(usize::MAX).rows();
        assert_eq!(rows.len(), Kernels::NAMES + 1);
        let others = rows.iter().find(|row| row.name == Kernels::OTHERS).unwrap();
        // Two names are of copies and fills.
        assert_eq!((others.calls, others.total), (22 * 7, 22 * Duration::from_micros(130)));
    }
}
