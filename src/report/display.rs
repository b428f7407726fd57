use super::{Report, units};
use std::fmt;

/// The number of rows in the table of kernels, and in that of operations.
const TABLE_ROWS: usize = 10;

/// The number of incomplete windows that have a line of their own.
const INCOMPLETE_WINDOWS: usize = 5;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.averages().fmt(f)?;
        if !self.gpus.kernels.is_empty() {
            write!(f, "\n{}\n", self.kernels().limit(TABLE_ROWS))?;
        }
        if !self.operations.is_empty() {
            write!(f, "\n{}\n", self.operations().limit(TABLE_ROWS))?;
        }
        let count = |count, what| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        write!(f, "{} in {}", count(self.spans, "span"), count(self.windows.into(), "window"))?;
        write!(f, " of {} together", units::time(self.recorded))?;
        writeln!(f, "{}{}", if self.steps.is_empty() { "" } else { "; " }, self.steps)?;
        self.gpus.fmt(f)?;
        writeln!(f, "{}", self.losses)?;
        for (window, launches) in self.incomplete.iter().take(INCOMPLETE_WINDOWS) {
            writeln!(f, "{}", incomplete(*window, *launches))?;
        }
        if let more @ 1.. = self.incomplete.len().saturating_sub(INCOMPLETE_WINDOWS) {
            writeln!(f, "and so {} {more} more", if more == 1 { "is" } else { "are" })?;
        }
        if let Some(level) = self.filtered {
            writeln!(f, "spans below {level} were off: a filter for all layers, or a feature of tracing, hides them")?;
        }
        self.files.iter().try_for_each(|file| writeln!(f, "wrote {}", file.display()))?;
        self.deliveries.iter().try_for_each(|delivery| writeln!(f, "{delivery}"))
    }
}

/// Returns the message that some launches of a window never came back.
pub(crate) fn incomplete(window: u32, launches: u64) -> String {
    let kernels = if launches == 1 { "kernel" } else { "kernels" };
    format!("window {window} is incomplete: {launches} {kernels} never came back")
}
