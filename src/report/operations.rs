use super::{
    op::Op,
    operation_times::{OperationTimes, Tally},
    table::{self, Table},
    units,
};
use std::{cmp::Ordering, fmt, time::Duration};

/// What frameworks were asked to do over the whole run, by the name of the [`Operation`](crate::trace::Operation), with the GPU time of it; to be
/// printed.
///
/// # How time is counted
///
/// A framework may do several operations in one kernel, and one operation in several kernels. What is known is which operations a
/// kernel was launched for: those of its [batch](crate::framework::Origin::in_batch). So the time of a kernel whose batch has operations of one name
/// only is that name's *alone*; the time of one whose batch has operations of several names is *shared*, and is counted for each of them
/// in full, as nothing says how much of it each took. Alone times of different names add up; shared times do not. By shape, a name with
/// one shape and the same name with another are two.
///
/// Copies and fills of memory that were launched for a batch count as kernels do, but are not among [`kernels`](OperationAverage::kernels).
/// The time of work that was launched in no batch, or in one of which no operation was told, is not in this table.
///
/// Beyond [`Operations::NAMES`] names, what comes is one row, [`Operations::OTHERS`]; beyond as many rows, shapes are not told apart any
/// more, only names.
///
/// ```
/// # fn show(report: &kernspan::Report) {
/// use kernspan::report::SortOperationsBy;
///
/// for row in report.operations().sort_by(SortOperationsBy::Alone).limit(3).rows() {
///     println!("{} took {:?} by itself, and was in kernels of {:?}", row.name, row.alone, row.shared);
/// }
/// println!("{}", report.operations().group_by_shape(true));
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Operations<'a> {
    times: &'a OperationTimes,
    sort_by: SortOperationsBy,
    by_shape: bool,
    limit: usize,
    width: Option<usize>,
}

/// What the rows of [`Operations`] are sorted by, the largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SortOperationsBy {
    /// GPU time, alone and shared.
    #[default]
    Gpu,
    /// GPU time of kernels that did nothing else.
    Alone,
    /// How often it was asked for.
    Calls,
    /// Floating-point operations.
    Flops,
    /// The name, the first in the alphabet first.
    Name,
}

/// One row: the operations of one name, and of one shape if it was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OperationAverage {
    /// The name.
    pub name: String,
    /// Shapes of the arguments, when grouped by shape and if they are known.
    pub shapes: Option<String>,
    /// The size of the matrix product that it is, as `64x512x512`, when grouped by shape and if the operation says.
    pub gemm: Option<String>,
    /// How often it was asked for.
    pub calls: u64,
    /// Floating-point operations of all calls, as far as the operations say: see [`convention::FLOPS`](crate::trace::convention::FLOPS).
    pub flops: u64,
    /// Time of GPU work that did operations of this row only, each piece by itself even where some ran at the same time.
    pub alone: Duration,
    /// Time of GPU work that did operations of this row together with others, and counts for those as well.
    pub shared: Duration,
    /// How many kernels did it, alone or together with others.
    pub kernels: u64,
}

impl OperationAverage {
    fn of(name: Option<&str>, op: Option<Op<'_>>, tally: &Tally) -> Self {
        let Tally { calls, flops, alone, shared, kernels } = *tally;
        Self {
            name: name.unwrap_or(Operations::OTHERS).to_owned(),
            shapes: op.map(|op| op.shapes.to_owned()),
            gemm: op.and_then(|op| op.gemm).map(str::to_owned),
            calls,
            flops,
            alone,
            shared,
            kernels,
        }
    }
}

impl SortOperationsBy {
    fn order(self, a: &OperationAverage, b: &OperationAverage) -> Ordering {
        match self {
            Self::Gpu => (b.alone + b.shared).cmp(&(a.alone + a.shared)),
            Self::Alone => b.alone.cmp(&a.alone),
            Self::Calls => b.calls.cmp(&a.calls),
            Self::Flops => b.flops.cmp(&a.flops),
            Self::Name => a.name.cmp(&b.name),
        }
    }
}

impl<'a> Operations<'a> {
    /// Rows that are shown by default.
    pub const LIMIT: usize = 100;
    /// Names that are told apart, and pairs of a name and a shape.
    pub const NAMES: usize = 10_000;
    /// The name of the row of what came after [`Self::NAMES`] names.
    pub const OTHERS: &'static str = "[others]";

    pub(super) fn new(times: &'a OperationTimes) -> Self {
        Self { times, sort_by: SortOperationsBy::default(), by_shape: false, limit: Self::LIMIT, width: None }
    }

    /// What to sort by. By default, [`SortOperationsBy::Gpu`].
    #[must_use]
    pub fn sort_by(mut self, sort_by: SortOperationsBy) -> Self {
        self.sort_by = sort_by;
        self
    }

    /// Whether operations with different shapes of their arguments are different rows. By default, they are not.
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

    /// The rows, sorted and limited.
    pub fn rows(&self) -> Vec<OperationAverage> {
        let mut rows = self.all_rows();
        rows.truncate(self.limit);
        rows
    }

    fn all_rows(&self) -> Vec<OperationAverage> {
        let rows = self.times.iter(self.by_shape);
        let mut rows: Vec<_> = rows.map(|(name, op, tally)| OperationAverage::of(name, op, tally)).collect();
        // Ties by calls, name and shape, so that the same run prints the same table.
        rows.sort_by(|a, b| {
            let what = || (&a.name, &a.shapes, &a.gemm).cmp(&(&b.name, &b.shapes, &b.gemm));
            self.sort_by.order(a, b).then(b.calls.cmp(&a.calls)).then_with(what)
        });
        rows
    }
}

impl fmt::Display for Operations<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = self.all_rows();
        let left_out = rows.len().saturating_sub(self.limit);
        rows.truncate(self.limit);
        if rows.is_empty() {
            return writeln!(f, "no operations were recorded: no framework told of any");
        }
        let mut table = Table::new(&rows);
        table.text("Operation", |row| row.name.clone());
        if rows.iter().any(|row| row.kernels > 0 || !(row.alone + row.shared).is_zero()) {
            table.number("CUDA alone", |row| units::time(row.alone));
            table.number("CUDA shared", |row| units::time(row.shared));
            table.number("# of Kernels", |row| row.kernels.to_string()).spare(1);
        }
        table.number("# of Calls", |row| row.calls.to_string());
        if rows.iter().any(|row| row.flops > 0) {
            table.number("Total FLOPs", |row| units::count(row.flops)).spare(2);
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
    use super::{OperationAverage, Operations, SortOperationsBy};
    use crate::{
        report::Report,
        trace::{
            Operation,
            sample::{gpu_trace, operations_trace, tell},
        },
    };
    use std::sync::Arc;

    fn seen(row: &OperationAverage) -> (&str, u64, u64, [u128; 2], u64) {
        (&row.name, row.calls, row.flops, [row.alone, row.shared].map(|time| time.as_micros()), row.kernels)
    }

    #[test]
    fn time_is_alone_where_a_kernel_did_nothing_else() {
        // Two windows of two steps, in each of which a kernel of 20 µs did `matmul` and one of 30 µs all.
        let report = Report::of([&operations_trace(), &operations_trace()]);
        let rows = report.operations().rows();
        let expected =
            [("matmul", 8, 4 * 1_005_000_000, [80, 120], 8), ("add", 8, 64, [0, 120], 4), ("sync", 4, 0, [0, 0], 0)];
        assert_eq!(rows.iter().map(seen).collect::<Vec<_>>(), expected);
        let order = |by| report.operations().sort_by(by).rows().into_iter().map(|row| row.name).collect::<Vec<_>>();
        assert_eq!(order(SortOperationsBy::Name), ["add", "matmul", "sync"]);
        assert_eq!(order(SortOperationsBy::Calls), ["add", "matmul", "sync"], "ties by name");
        assert_eq!(order(SortOperationsBy::Flops), ["matmul", "add", "sync"]);
        assert_eq!(order(SortOperationsBy::Alone), ["matmul", "add", "sync"]);
    }

    #[test]
    fn shapes_make_operations_different() {
        let mut trace = gpu_trace();
        let matmul = |shape: &str| Arc::new(Operation::new("matmul").with("op.shape.lhs", shape));
        let gemm = Operation::clone(&matmul("[2]")).with("op.gemm", "1x2x3").with("op.shape.output", "[9]");
        let (one, two, gemm) = (matmul("[1]"), matmul("[2]"), Arc::new(gemm));
        // Said by another, but the same.
        let again = matmul("[1]");
        // Of the kernels, the first did one shape, twice, and the second two; the graph's kernel and fill did another.
        let told = [(&one, None, 1), (&again, None, 1), (&one, None, 2), (&two, None, 2), (&gemm, None, 3)];
        tell(&mut trace, &told, &[(2, 1), (3, 2), (4, 3)]);
        let report = Report::of([&trace]);
        let named: Vec<_> = report.operations().rows();
        assert_eq!(named.iter().map(seen).collect::<Vec<_>>(), [("matmul", 5, 0, [70, 0], 3)]);
        let rows = report.operations().group_by_shape(true).rows();
        let shapes: Vec<_> = rows.iter().map(|row| (row.shapes.as_deref(), row.gemm.as_deref(), seen(row))).collect();
        let expected = [
            (Some("[1]"), None, ("matmul", 3, 0, [20, 30], 2)),
            (Some("[2]"), None, ("matmul", 1, 0, [0, 30], 1)),
            // 10 µs of the kernel, and 10 of the fill, which is none.
            (Some("[2]"), Some("1x2x3"), ("matmul", 1, 0, [20, 0], 1)),
        ];
        assert_eq!(shapes, expected);
    }

    #[test]
    fn the_table_shows_what_is_known() {
        let none = Report::of([&gpu_trace()]);
        assert_eq!(none.operations().to_string(), "no operations were recorded: no framework told of any\n");
        assert!(!none.to_string().contains("operations were"), "not asked for, it is not mentioned");
        let report = Report::of([&operations_trace()]);
        let table = report.operations().group_by_shape(true).limit(3).width(120);
        assert_eq!(
            format!("\n{table}"),
            "
---------  ----------  -----------  ------------  ----------  -----------  ------------
Operation  CUDA alone  CUDA shared  # of Kernels  # of Calls  Total FLOPs  Input Shapes
---------  ----------  -----------  ------------  ----------  -----------  ------------
add           0.000µs     60.000µs             2           4           32  [8]
matmul        0.000µs     60.000µs             2           2       1.340G  [4, 8]
matmul       40.000µs      0.000µs             2           2     670.000M  [8, 4]
---------  ----------  -----------  ------------  ----------  -----------  ------------
1 more rows
"
        );
        assert!(report.to_string().contains("\nOperation  CUDA alone"), "{report}");
        let mut without = operations_trace();
        without.work.clear();
        let table = Report::of([&without]).operations().to_string();
        assert!(!table.contains("CUDA") && table.contains("matmul"), "{table}");
    }

    #[test]
    fn names_and_shapes_are_bounded() {
        let mut trace = gpu_trace();
        let told: Vec<_> = (0..Operations::NAMES + 20)
            .map(|number| Arc::new(Operation::new(format!("op {number}")).with("op.shape.lhs", format!("[{number}]"))))
            .collect();
        let told: Vec<_> = told.iter().map(|operation| (operation, None, 1)).collect();
        tell(&mut trace, &told, &[(2, 1)]);
        let report = Report::of([&trace]);
        let rows = report.operations().limit(usize::MAX).rows();
        assert_eq!(rows.len(), Operations::NAMES + 1);
        assert_eq!(rows.iter().map(|row| row.calls).sum::<u64>(), told.len() as u64);
        let others = rows.iter().find(|row| row.name == Operations::OTHERS).unwrap();
        assert_eq!(seen(others), (Operations::OTHERS, 20, 0, [0, 20], 1));
        assert_eq!(report.operations().group_by_shape(true).limit(usize::MAX).rows().len(), Operations::NAMES + 1);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn rows_can_be_serialized() {
        let json = serde_json::to_value(Report::of([&operations_trace()])).unwrap();
        let row = &json["operations"][0];
        assert_eq!((&row["name"], &row["calls"], &row["kernels"]), (&"matmul".into(), &4.into(), &4.into()));
        assert_eq!(row["alone"]["nanos"], 40_000);
    }
}
