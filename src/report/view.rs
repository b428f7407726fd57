//! The size of printed tables, and the methods that all tables have.

use super::{
    table::{Column, Table},
    wrap::{WIDTH, terminal_width},
};
use std::fmt;

/// The size of a printed table: the most rows, and the most columns of text.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) limit: usize,
    pub(super) width: usize,
    /// Whether the first column has names of kernels.
    pub(super) has_kernels: bool,
}

impl View {
    /// Returns a view of `limit` rows.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, width: WIDTH, has_kernels: false }
    }

    /// Sets the width to that of the terminal, if standard output is one.
    pub(super) fn fit_terminal(&mut self) {
        self.width = terminal_width().unwrap_or(self.width);
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

    /// Returns the table of the rows up to the limit, which says how many more there are.
    pub(super) fn table<R>(self, rows: &[R], table: fn(&[R]) -> Table) -> Table {
        let shown = self.shown(rows);
        let mut table = table(shown);
        if self.has_kernels {
            table.first().into_iter().for_each(Column::kernels);
        }
        table.left_out(rows.len() - shown.len()).width(self.width)
    }

    /// Writes the table of the rows up to the limit, then how many more there are; or the line `none` without rows.
    pub(super) fn write<R>(
        self,
        f: &mut fmt::Formatter<'_>,
        rows: &[R],
        table: fn(&[R]) -> Table,
        none: &str,
    ) -> fmt::Result {
        match self.shown(rows) {
            [] => writeln!(f, "{none}"),
            _ => self.table(rows, table).write(f),
        }
    }
}

/// The methods by which a table's `view` is set. The text says what `limit` does.
macro_rules! view_methods {
    ($limit:literal) => {
        #[doc = $limit]
        pub fn limit(mut self, rows: usize) -> Self {
            self.view.limit = rows;
            self
        }

        /// Sets how many columns of text a printed table may take. By default, 120:
        /// [`Report::WIDTH`](super::Report::WIDTH).
        pub fn width(mut self, columns: usize) -> Self {
            self.view.width = columns;
            self
        }

        /// Sets the width to that of the terminal. It stays as it is if standard output is no terminal.
        pub fn fit_terminal(mut self) -> Self {
            self.view.fit_terminal();
            self
        }
    };
}

/// The methods and the `Display` of a table whose `all_rows` are limited by its `view`. The text is printed if there
/// are no rows.
macro_rules! table_of_rows {
    ($table:ident, $row:ident, $none:literal) => {
        impl $table<'_> {
            $crate::report::view::view_methods!("Limits the number of rows. By default, [`Self::LIMIT`].");

            /// Returns the rows, sorted and limited.
            #[must_use]
            pub fn rows(&self) -> Vec<$row> {
                self.view.limited(self.all_rows())
            }

            /// Returns the table of these rows as it is printed, for programs that print it in another format.
            pub fn table(&self) -> Table {
                self.view.table(&self.all_rows(), $row::table)
            }
        }

        impl std::fmt::Display for $table<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.view.write(f, &self.all_rows(), $row::table, $none)
            }
        }
    };
}

pub(super) use {table_of_rows, view_methods};

#[cfg(test)]
mod tests {
    use super::View;
    use crate::report::table::Table;
    use std::fmt;

    struct Letters(View, Vec<&'static str>);

    impl fmt::Display for Letters {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.write(
                f,
                &self.1,
                |rows| {
                    let mut table = Table::default();
                    table.text("Letter", rows, |row| (*row).to_owned());
                    table
                },
                "no letters",
            )
        }
    }

    #[test]
    fn rows_past_the_limit_are_counted() {
        let text = |limit| Letters(View { width: 80, ..View::new(limit) }, vec!["a", "b", "c"]).to_string();
        assert_eq!(text(1), "------\nLetter\n------\na\n------\n2 more rows\n");
        assert_eq!(text(3), "------\nLetter\n------\na\nb\nc\n------\n");
        assert_eq!(text(0), "no letters\n");
        let view = View { width: 80, ..View::new(2) };
        assert_eq!((view.shown(&[1, 2, 3]), view.limited(vec![1, 2, 3])), (&[1, 2][..], vec![1, 2]));
    }
}
