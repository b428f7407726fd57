//! Text tables.

use super::{
    function_names::{fit_functions, short_functions},
    short_names::{KeptEnd, are_ambiguous, fit_kernels, short_names},
    wrap::{WIDTH, terminal_width, wrap},
};
use crate::{kernel_names::short_kernels, units::NOTHING};
use std::fmt::{self, Write};
use unicode_width::UnicodeWidthStr;

/// A text table. Numbers are aligned to the right, texts to the left. Texts are
/// shortened if there is no room, so that they stay different.
///
/// A column without a value in any row is left out.
///
/// Tables of a report can be had as one ([`Averages::table`](super::Averages::table) and others), to print them in
/// another format. `Display` writes at most [`Report::WIDTH`](super::Report::WIDTH) columns of text, unless another
/// width was set.
///
/// ```
/// use kernspan::report::{Table, units};
/// use std::time::Duration;
///
/// let rows = [("forward", Duration::from_micros(1500)), ("backward", Duration::from_micros(2250))];
/// let mut table = Table::default();
/// table.text("Name", &rows, |row| row.0.to_owned());
/// table.number("Time", &rows, |row| units::column_time(row.1));
/// assert_eq!(table.to_string().lines().nth(3), Some("forward   1.500 ms"));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a table does nothing unless it is printed"]
pub struct Table {
    heading: Option<String>,
    columns: Vec<Column>,
    notes: Vec<String>,
    left_out: usize,
    width: usize,
}

/// A column of a [`Table`]: a title, and a cell for each row.
#[derive(Clone, Debug)]
pub struct Column {
    title: &'static str,
    cells: Vec<String>,
    /// Whether the cells are texts, which are aligned to the left and may be cut.
    is_text: bool,
    has_values: bool,
    drop_order: Option<u8>,
    kept_end: KeptEnd,
    names: NamesOf,
    /// The texts in full, if the cells are short forms of them.
    full: Option<Vec<String>>,
}

/// What texts name, by which they are shortened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum NamesOf {
    #[default]
    Anything,
    Functions,
    Kernels,
}

impl Table {
    /// Adds a column of text. A cell without a value is empty.
    pub fn text<R, C>(&mut self, title: &'static str, rows: &[R], cell: fn(&R) -> C) -> &mut Column
    where
        C: Into<Option<String>>,
    {
        self.push(title, cells(rows, cell), true)
    }

    /// Adds a column of numbers. A cell without a value is [`NOTHING`].
    pub fn number<R, C>(&mut self, title: &'static str, rows: &[R], cell: fn(&R) -> C) -> &mut Column
    where
        C: Into<Option<String>>,
    {
        self.push(title, cells(rows, cell), false)
    }

    /// Returns the first column.
    pub(super) fn first(&mut self) -> Option<&mut Column> {
        self.columns.first_mut()
    }

    fn push(&mut self, title: &'static str, cells: Vec<Option<String>>, is_text: bool) -> &mut Column {
        let has_values = cells.is_empty() || cells.iter().any(Option::is_some);
        let missing = if is_text { "" } else { NOTHING };
        let text = |cell: Option<String>| cell.unwrap_or_else(|| missing.to_owned());
        // No name, shape or stack may break a line.
        let clean = |cell: String| cell.replace(|c: char| c.is_control(), " ");
        let cells = cells.into_iter().map(text).map(clean).collect();
        let index = self.columns.len();
        self.columns.push(Column {
            title,
            cells,
            is_text,
            has_values,
            drop_order: None,
            kept_end: KeptEnd::default(),
            names: NamesOf::default(),
            full: None,
        });
        &mut self.columns[index]
    }

    /// Sets the line that is written above the table. By default, there is none.
    pub fn heading(&mut self, heading: String) {
        self.heading = Some(heading);
    }

    /// Adds a line that is written below the table.
    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Sets how many more rows there are, which a line below the table says. By default, 0.
    pub fn left_out(mut self, rows: usize) -> Self {
        self.left_out = rows;
        self
    }

    /// Sets how many columns of text the printed table may take. By default, 120:
    /// [`Report::WIDTH`](super::Report::WIDTH).
    pub fn width(mut self, columns: usize) -> Self {
        self.width = columns;
        self
    }

    /// Sets the width to that of the terminal. It stays as it is if standard output is no terminal.
    pub fn fit_terminal(mut self) -> Self {
        self.width = terminal_width().unwrap_or(self.width);
        self
    }

    /// Prints all texts in full, however wide the table becomes. By default, kernels have
    /// [short names](super::short_kernels), and texts are cut to fit the width.
    pub fn full_names(mut self) -> Self {
        self.width = usize::MAX;
        for column in &mut self.columns {
            column.names = NamesOf::Anything;
            column.cells = column.full.take().unwrap_or_else(|| std::mem::take(&mut column.cells));
        }
        self
    }

    /// Returns the line that is printed above the table.
    pub fn line_above(&self) -> Option<&str> {
        self.heading.as_deref()
    }

    /// Returns the columns that have a value in any row.
    pub fn columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.has_values)
    }

    /// Returns the lines that are printed below the table: how many rows were left out, and the notes.
    pub fn lines_below(&self) -> impl Iterator<Item = String> {
        let left_out = match self.left_out {
            0 => None,
            1 => Some("1 more row".to_owned()),
            rows => Some(format!("{rows} more rows")),
        };
        left_out.into_iter().chain(self.notes.iter().cloned())
    }

    /// Writes the table.
    pub(super) fn write(mut self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.width;
        self.heading.iter().try_for_each(|heading| writeln!(f, "{}", wrap(heading, width)))?;
        self.columns.retain(|column| column.has_values);
        let dropped = drop_columns(&mut self.columns, width);
        let widths = widths(&self.columns.iter().collect::<Vec<_>>(), width);
        let widths: Vec<_> = self.columns.iter_mut().zip(widths).map(|(column, width)| column.shorten(width)).collect();
        let line: String = widths.iter().map(|&width| "-".repeat(width)).collect::<Vec<_>>().join("  ");
        writeln!(f, "{line}")?;
        write_row(f, &self.columns, &widths, |column| column.title)?;
        writeln!(f, "{line}")?;
        for row in 0..self.columns.first().map_or(0, |column| column.cells.len()) {
            write_row(f, &self.columns, &widths, |column| &column.cells[row])?;
        }
        writeln!(f, "{line}")?;
        if !dropped.is_empty() {
            // No title is broken.
            let titles = dropped.join(", ").replace(' ', "\u{a0}").replace(",\u{a0}", ", ");
            writeln!(f, "{}", wrap(&format!("hidden to fit the terminal: {titles}"), width).replace('\u{a0}', " "))?;
        }
        self.lines_below().try_for_each(|line| writeln!(f, "{}", wrap(&line, width)))
    }
}

impl Default for Table {
    /// Makes a table without columns.
    fn default() -> Self {
        Self { heading: None, columns: Vec::new(), notes: Vec::new(), left_out: 0, width: WIDTH }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.clone().write(f)
    }
}

impl Column {
    /// The width that text is cut to at the least.
    const MIN_TEXT: usize = 16;
    /// The width that text keeps until all droppable columns are gone.
    const LEGIBLE_TEXT: usize = 22;
    /// The same of names of functions: `<BarrierGuard as Drop>::drop` has 28 columns.
    const LEGIBLE_FUNCTION: usize = 30;
    /// The same of names of kernels: `elementwise_kernel<leaky_relu_backward>` has 39 columns.
    const LEGIBLE_KERNEL: usize = 40;

    /// Returns the title.
    pub fn title(&self) -> &'static str {
        self.title
    }

    /// Returns the text of the column in each row.
    pub fn cells(&self) -> &[String] {
        &self.cells
    }

    /// Returns whether the column has texts, which are aligned to the left, and not numbers.
    pub fn is_text(&self) -> bool {
        self.is_text
    }

    /// Lets the column be dropped where there is no room. The column with the lowest `order` is dropped first.
    pub fn droppable(&mut self, order: u8) {
        self.drop_order = Some(order);
    }

    /// Has texts keep their start if they are shortened, and not their end.
    pub fn keep_start(&mut self) {
        self.kept_end = KeptEnd::Start;
    }

    /// Has texts shortened as names of functions, whose types and methods say more than their modules.
    pub(super) fn functions(&mut self) {
        self.names = NamesOf::Functions;
    }

    /// Has texts shortened as [names of kernels](super::short_kernels).
    pub fn kernels(&mut self) {
        self.names = NamesOf::Kernels;
        let short = short_kernels(&self.cells);
        self.full = Some(std::mem::replace(&mut self.cells, short));
    }

    /// Has texts keep their indentation and both ends if they are shortened.
    pub(super) fn keep_indent(&mut self) {
        self.kept_end = KeptEnd::Both;
    }

    /// Returns the texts in at most `width` columns.
    fn short_cells(&self, width: usize) -> Vec<String> {
        match self.names {
            _ if !self.is_text => self.cells.clone(),
            NamesOf::Functions => fit_functions(&self.cells, width),
            NamesOf::Kernels => fit_kernels(self.full.as_ref().unwrap_or(&self.cells), width),
            NamesOf::Anything => short_names(&self.cells, width, self.kept_end),
        }
    }

    /// Shortens the texts to at most `width` columns. Returns the width of the widest, or of the title.
    fn shorten(&mut self, width: usize) -> usize {
        self.cells = self.short_cells(width);
        self.width().min(width)
    }

    fn width(&self) -> usize {
        self.cells.iter().map(|cell| cell.width()).max().unwrap_or(0).max(self.title.width())
    }

    fn legible_width(&self) -> usize {
        match self.names {
            _ if !self.is_text => self.width(),
            NamesOf::Functions => {
                let short = short_functions(&self.cells);
                let widest = short.iter().map(|name| name.width()).max().unwrap_or(0);
                widest.min(Self::LEGIBLE_FUNCTION).max(self.title.width())
            }
            NamesOf::Kernels => self.width().min(Self::LEGIBLE_KERNEL),
            NamesOf::Anything => self.width().min(Self::LEGIBLE_TEXT),
        }
    }
}

/// Formats a cell of each row. `cell` is a function pointer, since a closure would be compiled anew for each column.
fn cells<R, C: Into<Option<String>>>(rows: &[R], cell: fn(&R) -> C) -> Vec<Option<String>> {
    rows.iter().map(|row| cell(row).into()).collect()
}

/// Drops columns until the others have room, and then until no two texts look alike, if that is possible. Returns the
/// titles of the dropped columns, in the order they were dropped.
fn drop_columns(columns: &mut Vec<Column>, available: usize) -> Vec<&'static str> {
    let mut order: Vec<_> = (0..columns.len()).filter(|&index| columns[index].drop_order.is_some()).collect();
    order.sort_by_key(|&index| columns[index].drop_order);
    let kept = |count: usize| {
        let is_kept = |index: &usize| !order[..count].contains(index);
        (0..columns.len()).filter(is_kept).map(|index| &columns[index]).collect::<Vec<_>>()
    };
    let has_room = |count: &usize| {
        let needed = kept(*count).iter().map(|column| column.legible_width() + 2).sum::<usize>();
        needed <= available.saturating_add(2)
    };
    let is_clear = |count: &usize| {
        let kept = kept(*count);
        let widths = widths(&kept, available);
        let mut texts = kept.iter().zip(widths).filter(|(column, width)| column.is_text && *width < column.width());
        texts.all(|(column, width)| !are_ambiguous(&column.cells, &column.short_cells(width)))
    };
    let fewest = (0..=order.len()).find(has_room).unwrap_or(order.len());
    let count = (fewest..=order.len()).find(is_clear).unwrap_or(fewest);
    let dropped = order[..count].iter().map(|&index| columns[index].title).collect();
    let mut index = 0..;
    columns.retain(|_| index.next().is_some_and(|index| !order[..count].contains(&index)));
    dropped
}

/// Returns the width of each column: that of its widest cell, less what text is cut by.
fn widths(columns: &[&Column], available: usize) -> Vec<usize> {
    let mut widths: Vec<_> = columns.iter().map(|column| column.width()).collect();
    let gaps = 2 * columns.len().saturating_sub(1);
    let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(available);
    let legible: Vec<_> = columns.iter().map(|column| column.legible_width()).collect();
    let least = vec![Column::MIN_TEXT; columns.len()];
    for floors in [legible, least] {
        while excess > 0 {
            let may_shrink = |&column: &usize| columns[column].is_text && widths[column] > floors[column];
            let Some(widest) = (0..columns.len()).filter(may_shrink).max_by_key(|&column| widths[column]) else {
                break;
            };
            widths[widest] -= 1;
            excess -= 1;
        }
    }
    widths
}

/// Writes one line. `cell` returns the text in a column.
fn write_row<'a>(
    f: &mut fmt::Formatter<'_>,
    columns: &'a [Column],
    widths: &[usize],
    cell: impl Fn(&'a Column) -> &'a str,
) -> fmt::Result {
    let mut line = String::new();
    for (index, (column, &width)) in columns.iter().zip(widths).enumerate() {
        let cell = cell(column);
        let padding = " ".repeat(width.saturating_sub(cell.width()));
        let (before, after) = if column.is_text { ("", padding.as_str()) } else { (padding.as_str(), "") };
        write!(line, "{}{before}{cell}{after}", if index == 0 { "" } else { "  " })?;
    }
    writeln!(f, "{}", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::Table;
    use std::fmt;

    struct Sizes(Vec<(&'static str, u32)>, usize);

    impl fmt::Display for Sizes {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let mut table = Table::default();
            table.text("Name", &self.0, |row| row.0.to_owned());
            table.number("Size", &self.0, |row| row.1.to_string());
            table.number("Twice the size", &self.0, |row| (2 * row.1).to_string()).droppable(2);
            table.number("Half the size", &self.0, |row| (row.1 / 2).to_string()).droppable(1);
            table.left_out(1).width(self.1).write(f)
        }
    }

    #[test]
    fn droppable_columns_go_before_names_are_illegible() {
        let rows = vec![("a name of thirty-two characters.", 8), ("b\n", 10)];
        let first = |width| Sizes(rows.clone(), width).to_string().lines().nth(3).unwrap_or_default().to_owned();
        assert_eq!(first(usize::MAX), first(80));
        assert_eq!(first(80), "a name of thirty-two characters.     8              16              4");
        assert_eq!(first(60), "a name of t…characters.     8              16              4");
        assert_eq!(first(56), "a name of thirty-two characters.     8              16");
        assert_eq!(first(30), "a name of t… characters.     8");
        assert_eq!(first(10), "a name …racters.     8", "text is cut to no less");
        assert_eq!(
            format!("\n{}", Sizes(rows, 28)),
            "
----------------------  ----
Name                    Size
----------------------  ----
a name of …characters.     8
b                         10
----------------------  ----
hidden to fit the terminal:
  Half the size,
  Twice the size
1 more row
"
        );
    }

    #[test]
    fn columns_without_values_are_left_out() {
        struct Known(Vec<Option<u32>>);
        impl fmt::Display for Known {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut table = Table::default();
                table.number("Number", &self.0, |_| "1".to_owned());
                table.number("Known", &self.0, |row| row.map(|known| known.to_string()));
                table.width(80).write(f)
            }
        }
        let rows = |rows: Vec<Option<u32>>| {
            let lines = Known(rows).to_string();
            lines.lines().filter(|line| !line.starts_with('-')).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(rows(vec![None, Some(7)]), ["Number  Known", "     1      –", "     1      7"]);
        assert_eq!(rows(vec![None, None]), ["Number", "     1", "     1"]);
        assert_eq!(rows(vec![]), ["Number  Known"]);
    }
}
