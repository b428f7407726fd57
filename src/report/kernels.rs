use super::{
    kernel_times::{KernelTimes, Tally},
    op::Op,
    table::{self, Table},
    units,
};
use crate::analysis::percent_of;
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fmt,
    time::Duration,
};

/// GPU time by kernel over the whole run, with copies and fills of memory, the longest first; to be printed.
///
/// Beyond [`Kernels::NAMES`] names, what comes is one row, [`Kernels::OTHERS`]; beyond as many pairs of a name and a shape, shapes are
/// not told apart any more, only names.
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
    group: Option<Group>,
    by_shape: bool,
    limit: usize,
    width: Option<usize>,
}

/// Says which row a name belongs to.
type Group = fn(&str) -> Cow<'_, str>;

/// A row in the making.
#[derive(Default)]
struct Row<'a> {
    tally: Tally,
    names: HashSet<&'a str>,
}

/// One row: the kernels of one name, or the copies from one kind of memory to another, and of one shape if it was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KernelAverage {
    /// The kernel's name, or as `Memcpy HtoD (Pageable -> Device)`; the group's when grouped.
    pub name: String,
    /// How many names of kernels and copies are in the row: one, unless grouped.
    pub names: u64,
    /// Shapes of the arguments of the operation it was launched in, when grouped by shape and if they are known.
    pub shapes: Option<String>,
    /// The size of the matrix product that the operation is, as `64x512x512`, when grouped by shape and if the span says: see
    /// [`convention::GEMM`](crate::trace::convention::GEMM).
    pub gemm: Option<String>,
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
    /// The estimated [`Occupancy`](crate::trace::Occupancy) in percent, a long run counting for more, if it is known.
    pub occupancy: Option<f64>,
    /// Registers of a thread, the most there were; none for copies.
    pub registers: Option<u16>,
    /// Bytes copied or set; 0 for kernels.
    pub bytes: u64,
    /// Bytes copied or set in a second, over all of `total`; none for kernels.
    pub bytes_per_second: Option<f64>,
}

impl KernelAverage {
    /// A row of work that took so much of `all` time.
    fn of(tally: &Tally, all: Duration) -> Self {
        let Tally { calls, total, shortest, longest, occupancy, registers, bytes } = *tally;
        let seconds = total.as_secs_f64();
        Self {
            calls,
            total,
            percent: percent_of(total, all),
            average: total.div_f64(calls.max(1) as f64),
            shortest: shortest.unwrap_or_default(),
            longest,
            occupancy: occupancy.percent(),
            registers,
            bytes,
            bytes_per_second: (bytes > 0 && seconds > 0.0).then(|| bytes as f64 / seconds),
            ..Self::default()
        }
    }
}

impl<'a> Kernels<'a> {
    /// Rows that are shown by default.
    pub const LIMIT: usize = 100;
    /// Names that are told apart, and pairs of a name and a shape.
    pub const NAMES: usize = 10_000;
    /// The name of the row of what came after [`Self::NAMES`] names.
    pub const OTHERS: &'static str = "[others]";

    pub(super) fn new(times: &'a KernelTimes) -> Self {
        Self { times, group: None, by_shape: false, limit: Self::LIMIT, width: None }
    }

    /// Names for which `group` gives the same text are one row, of that name. It is asked for kernels as well as for copies and
    /// fills, but not for [`Self::OTHERS`]. By default, each name is a row.
    ///
    /// ```
    /// use std::borrow::Cow;
    ///
    /// /// `affine_f32` and `affine_f16` are both `affine`.
    /// fn without_type(name: &str) -> Cow<'_, str> {
    ///     name.rsplit_once('_').map_or(name, |(operation, _)| operation).into()
    /// }
    ///
    /// # fn show(report: &kernspan::Report) {
    /// println!("{}", report.kernels().group_by(without_type));
    /// # }
    /// ```
    #[must_use]
    pub fn group_by(mut self, group: fn(&str) -> Cow<'_, str>) -> Self {
        self.group = Some(group);
        self
    }

    /// Whether kernels launched in operations of different shapes are different rows. By default, they are not.
    ///
    /// The operation is the innermost of the spans around the launch that says its shapes: see
    /// [`convention::SHAPE`](crate::trace::convention::SHAPE).
    #[must_use]
    pub fn group_by_shape(mut self, group: bool) -> Self {
        self.by_shape = group;
        self
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
        let mut rows = self.all_rows();
        rows.truncate(self.limit);
        rows
    }

    fn all_rows(&self) -> Vec<KernelAverage> {
        let mut groups: HashMap<(Cow<'_, str>, Option<Op<'_>>), Row<'_>> = HashMap::new();
        for (name, op, tally) in self.times.iter() {
            let group = match (name, self.group) {
                (Some(name), Some(group)) => group(name),
                (name, _) => Cow::Borrowed(name.unwrap_or(Self::OTHERS)),
            };
            let row = groups.entry((group, op.filter(|_| self.by_shape))).or_default();
            row.tally.join(tally);
            row.names.insert(name.unwrap_or(Self::OTHERS));
        }
        let all = groups.values().map(|row| row.tally.total).sum();
        let row = |((name, op), row): ((Cow<'_, str>, Option<Op<'_>>), Row<'_>)| KernelAverage {
            name: name.into_owned(),
            names: row.names.len() as u64,
            shapes: op.map(|op| op.shapes.to_owned()),
            gemm: op.and_then(|op| op.gemm).map(str::to_owned),
            ..KernelAverage::of(&row.tally, all)
        };
        let mut rows: Vec<_> = groups.into_iter().map(row).collect();
        // Ties by name and shape, so that the same run prints the same table.
        rows.sort_by(|a, b| {
            let what = (&a.name, &a.shapes, &a.gemm).cmp(&(&b.name, &b.shapes, &b.gemm));
            b.total.cmp(&a.total).then(what)
        });
        rows
    }
}

impl fmt::Display for Kernels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = self.all_rows();
        let left_out = rows.len().saturating_sub(self.limit);
        rows.truncate(self.limit);
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
        if rows.iter().any(|row| row.names > 1) {
            table.number("# of Names", |row| row.names.to_string()).spare(5);
        }
        if rows.iter().any(|row| row.shapes.is_some()) {
            table.text("Input Shapes", |row| row.shapes.clone().unwrap_or_default());
        }
        if rows.iter().any(|row| row.gemm.is_some()) {
            table.text("m×n×k", |row| row.gemm.clone().unwrap_or_default());
        }
        table.write(f, left_out, self.width.unwrap_or_else(table::terminal_width))
    }
}

#[cfg(test)]
mod tests {
    use super::{KernelAverage, KernelTimes, Kernels};
    use crate::trace::{
        Detail,
        sample::{self, gpu_trace},
    };
    use std::borrow::Cow;

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
        assert!(rows.iter().all(|row| row.names == 1 && row.shapes.is_none() && row.gemm.is_none()));
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

    /// `GPU work` is of all kernels, `memory` of the rest.
    fn kind(name: &str) -> Cow<'_, str> {
        if name.starts_with("Mem") { "memory".into() } else { format!("GPU {}", "work").into() }
    }

    #[test]
    fn names_of_a_group_are_a_row() {
        let mut trace = gpu_trace();
        for work in &mut trace.work {
            if let Detail::Kernel(kernel) = &mut work.detail
                && &*kernel.name == "node"
            {
                // Sixteen blocks of four warps on each multiprocessor, which fill it.
                (kernel.grid, kernel.registers, kernel.static_shared_memory) = ([132 * 16, 1, 1], 32, 0);
            }
        }
        let mut times = KernelTimes::default();
        times.add(&trace);
        let rows = Kernels::new(&times).group_by(kind).rows();
        let seen: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.names, row.calls)).collect();
        assert_eq!(seen, [("GPU work", 3, 7), ("memory", 2, 4)]);
        let micros = |row: &KernelAverage| [row.total, row.shortest, row.longest].map(|time| time.as_micros());
        assert_eq!((micros(&rows[0]), micros(&rows[1])), ([130, 10, 30], [28, 4, 10]));
        // 110 µs at 2.273 % and 20 µs at 100 %.
        assert_eq!(format!("{:.3}", rows[0].occupancy.unwrap()), "17.308");
        assert_eq!((rows[0].registers, rows[1].registers, rows[1].occupancy), (Some(74), None, None));
        // 2 × 4000 copied and 2 × 64 set in 28 µs.
        assert_eq!((rows[1].bytes, rows[1].bytes_per_second.unwrap().round()), (8128, 290_285_714.0));
        assert_eq!(rows.iter().map(|row| row.percent).sum::<f64>().round(), 100.0);
    }

    #[test]
    fn the_table_shows_shapes_and_groups() {
        let mut trace = gpu_trace();
        sample::say(&mut trace, 0, &[("op.shape.input", "[8]")]);
        sample::say(&mut trace, 1, &[("op.shape.input", "[8, 4]"), ("op.gemm", "8x2x4")]);
        let mut times = KernelTimes::default();
        times.add(&trace);
        // Of 158 µs: the second step's 60 and the stray 10, the first `backward`'s 40, and the first `forward`'s 20.
        let kernels = Kernels::new(&times).group_by(kind).group_by_shape(true);
        assert_eq!(
            format!("\n{}", kernels.limit(3).width(100)),
            "
--------  ------  ----------  --------  ---------  ----------  ----------  ------------  -----
Kernel    CUDA %  CUDA total   Average  Occupancy  # of Calls  # of Names  Input Shapes  m×n×k
--------  ------  ----------  --------  ---------  ----------  ----------  ------------  -----
GPU work  44.30%    70.000µs  17.500µs      2.27%           4           3
GPU work  25.32%    40.000µs  20.000µs      2.27%           2           2  [8]
GPU work  12.66%    20.000µs  20.000µs      2.27%           1           1  [8, 4]        8x2x4
--------  ------  ----------  --------  ---------  ----------  ----------  ------------  -----
no room for Registers, Longest, Shortest
2 more rows
"
        );
    }
}
