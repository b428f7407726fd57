use super::table::Table;
use std::fmt;

/// The size limits of a printed table: the number of rows, and the width in columns of the terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) limit: usize,
    pub(super) width: usize,
}

impl View {
    /// The width where standard output is no terminal.
    const WIDTH: usize = 120;

    /// Returns a view of `limit` rows that is as wide as the terminal is now.
    ///
    /// Nothing else reads the terminal, so that a view prints the same however often and wherever it is printed.
    pub(super) fn fit_terminal(limit: usize) -> Self {
        #[cfg(unix)]
        let columns = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
        #[cfg(not(unix))]
        let columns = None;
        Self { limit, width: columns.filter(|&columns| columns > 0).unwrap_or(Self::WIDTH) }
    }

    /// Drops the rows past the limit.
    pub(super) fn limited<R>(self, mut rows: Vec<R>) -> Vec<R> {
        rows.truncate(self.limit);
        rows
    }

    /// Returns the rows up to the limit.
    pub(super) fn shown<R>(self, rows: &[R]) -> &[R] {
        &rows[..rows.len().min(self.limit)]
    }

    /// Writes the table of the rows up to the limit, then how many more there are.
    pub(super) fn write<R>(self, f: &mut fmt::Formatter<'_>, rows: &[R], table: fn(&[R]) -> Table) -> fmt::Result {
        let shown = self.shown(rows);
        table(shown).write(f, rows.len() - shown.len(), self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::View;
    use crate::report::table::Table;
    use std::fmt;

    struct Letters(View, Vec<&'static str>);

    impl fmt::Display for Letters {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.write(f, &self.1, |rows| {
                let mut table = Table::default();
                table.text("Letter", rows, |row| (*row).to_owned());
                table
            })
        }
    }

    #[test]
    fn rows_past_the_limit_are_counted() {
        let text = |limit| Letters(View { limit, width: 80 }, vec!["a", "b", "c"]).to_string();
        assert_eq!(text(1), "------\nLetter\n------\na\n------\n2 more rows\n");
        assert_eq!(text(3), "------\nLetter\n------\na\nb\nc\n------\n");
        let view = View { limit: 2, width: 80 };
        assert_eq!((view.shown(&[1, 2, 3]), view.limited(vec![1, 2, 3])), (&[1, 2][..], vec![1, 2]));
    }
}
