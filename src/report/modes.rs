//! The table that compares training, validation and inference.

use super::{Report, table::Table};
use crate::{
    analysis::{Analysis, ModeUse},
    units,
};

/// The use of each mode over all windows, in the order of [`Mode`](crate::analysis::Mode).
#[derive(Debug, Default)]
pub(super) struct ModesOfRun {
    uses: Vec<ModeUse>,
}

impl Report {
    /// Returns what training, validation and inference took over all windows, as far as spans are named after them: see
    /// [`Mode`](crate::analysis::Mode). The report prints a table if there are at least two of them.
    ///
    /// ```
    /// # fn show(report: &kernspan::Report) {
    /// for usage in report.modes() {
    ///     if let Some(rate) = usage.samples_per_second() {
    ///         println!("{}: {rate:.0} samples/s", usage.mode);
    ///     }
    /// }
    /// # }
    /// ```
    pub fn modes(&self) -> &[ModeUse] {
        &self.modes.uses
    }

    /// Whether there are at least two [`modes`](Self::modes) to compare.
    pub fn has_modes(&self) -> bool {
        self.modes().len() > 1
    }

    /// Returns the table of [`modes`](Self::modes) as it is printed, for programs that print it in another format.
    pub fn modes_table(&self) -> Table {
        let rows = self.modes();
        let mut table = Table::default();
        table.text("Mode", rows, |row| row.mode.to_string());
        table.number("Total time", rows, |row| units::column_time(row.total));
        table.number("Calls", rows, |row| units::calls(row.calls, row.cut_calls));
        table.number("Avg time", rows, |row| row.mean().map(units::column_time));
        if rows.iter().any(|row| row.whole != row.total) {
            table.number("In calls", rows, |row| units::column_time(row.whole));
        }
        if rows.iter().any(|row| !row.gpu_busy.is_zero()) {
            table.number("GPU busy", rows, |row| units::column_time(row.gpu_busy)).droppable(2);
            table.number("Busy %", rows, |row| units::percent(row.gpu_busy_percent())).droppable(4);
            table.number("Kernels", rows, |row| row.kernels.to_string()).droppable(1);
        }
        table.number("Samples/s", rows, |row| row.samples_per_second().map(units::rate));
        table.number("Tokens/s", rows, |row| row.tokens_per_second().map(units::rate));
        table.number("CUDA Peak", rows, |row| row.peak_gpu_memory.map(units::bytes)).droppable(3);
        table
    }
}

impl ModesOfRun {
    /// Adds a window.
    pub(super) fn add(&mut self, window: &Analysis<'_>) {
        for usage in window.modes() {
            match self.uses.binary_search_by_key(&usage.mode, |known| known.mode) {
                Ok(index) => self.uses[index].add(&usage),
                Err(index) => self.uses.insert(index, usage),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        report::Report,
        trace::sample::{add_counter, at, gpu_trace, rename},
    };

    #[test]
    fn modes_are_compared_if_there_are_several() {
        let one = Report::of([&gpu_trace()]);
        assert!(one.modes().len() == 1 && !one.to_string().contains("validation"), "{one}");
        let mut trace = gpu_trace();
        rename(&mut trace, 1, "evaluate");
        add_counter(&mut trace, "samples", &[(at(95), 6.0), (at(195), 6.0)]);
        let report = Report::of([&trace, &trace]);
        let text = report.to_string();
        let row = |name: &str| {
            let row = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
            row.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("training"), "training 240.000 µs 4 60.000 µs 136.000 µs 56.7 % 8 100 k –");
        assert_eq!(row("validation"), "validation 120.000 µs 4 30.000 µs 80.000 µs 66.7 % 4 – 4.98 KiB");
        // Between its calls, a loop does other things.
        rename(&mut trace, 0, "train");
        trace.spans[0].cut.end = true;
        let text = Report::of([&trace]).to_string();
        assert!(text.contains("In calls") && text.contains("training    "), "{text}");
        #[cfg(feature = "serde")]
        assert_eq!(serde_json::to_value(&report).unwrap()["modes"][1]["mode"], "validation");
    }
}
