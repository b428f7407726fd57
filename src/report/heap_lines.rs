//! The table of what lines of the program allocate on the heap.

use super::{
    leaks::MemoryOfRun,
    table::Table,
    units,
    view::{View, table_of_rows},
};
use crate::analysis::HeapLine;

/// A table of what each line of the program allocates on the heap, most bytes first, as estimated from samples: see
/// [`heap_lines`](crate::ProfilerBuilder::heap_lines).
///
/// ```
/// # fn show(report: &kernspan::Report) {
/// for line in report.heap_lines().limit(3).rows() {
///     println!("{} allocated about {} bytes, and kept {}", line.line, line.allocated, line.kept);
/// }
/// println!("{}", report.heap_lines());
/// # }
/// ```
#[must_use = "a table does nothing unless it is printed or its rows are taken"]
#[derive(Clone, Copy, Debug)]
pub struct HeapLines<'a> {
    memory: &'a MemoryOfRun,
    view: View,
}

impl<'a> HeapLines<'a> {
    /// The number of rows by default.
    pub const LIMIT: usize = 10;

    pub(super) fn new(memory: &'a MemoryOfRun) -> Self {
        Self { memory, view: View::new(Self::LIMIT) }
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.memory.has_lines()
    }

    fn all_rows(&self) -> Vec<HeapLine> {
        self.memory.heap_lines()
    }
}

table_of_rows!(HeapLines, HeapLine, "no lines of allocations were recorded");

impl HeapLine {
    /// Returns the table of the rows.
    pub(super) fn table(rows: &[Self]) -> Table {
        let mut table = Table::default();
        table.text("Allocated at", rows, |row| row.line.clone());
        table.number("Allocated", rows, |row| units::bytes(row.allocated));
        table.number("Kept", rows, |row| units::bytes(row.kept));
        table.number("# of Allocs", rows, |row| row.allocations.to_string());
        table.number("# of Samples", rows, |row| row.samples.to_string()).droppable(1);
        table
    }
}
