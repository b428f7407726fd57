//! A table, made to be read in a terminal: numbers to the right, names cut in the middle when there is no room.

use std::fmt::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Rows of any kind, and what is shown of each.
pub(super) struct Table<'a, R> {
    rows: &'a [R],
    columns: Vec<Column>,
}

/// What is shown of each row under one title.
pub(super) struct Column {
    title: &'static str,
    cells: Vec<String>,
    /// Text is to the left and may be cut; numbers are to the right and may not.
    text: bool,
    spare: Option<u8>,
}

impl<'a, R> Table<'a, R> {
    pub(super) fn new(rows: &'a [R]) -> Self {
        Self { rows, columns: Vec::new() }
    }

    /// Adds a column of text.
    pub(super) fn text(&mut self, title: &'static str, cell: impl Fn(&R) -> String) -> &mut Column {
        let column = self.number(title, cell);
        column.text = true;
        column
    }

    /// Adds a column of numbers.
    pub(super) fn number(&mut self, title: &'static str, cell: impl Fn(&R) -> String) -> &mut Column {
        // No name, shape or stack may break a line.
        let clean = |cell: String| cell.replace(|c: char| c.is_control(), " ");
        let cells = self.rows.iter().map(cell).map(clean).collect();
        let place = self.columns.len();
        self.columns.push(Column { title, cells, text: false, spare: None });
        &mut self.columns[place]
    }

    /// Writes the table in so many columns of the terminal, and that `left_out` rows are not in it.
    pub(super) fn write(mut self, f: &mut fmt::Formatter<'_>, left_out: usize, width: usize) -> fmt::Result {
        let given_up = give_up(&mut self.columns, width);
        let widths = widths(&self.columns, width);
        let line: String = widths.iter().map(|&width| "-".repeat(width)).collect::<Vec<_>>().join("  ");
        writeln!(f, "{line}")?;
        write_row(f, &self.columns, &widths, |column| column.title)?;
        writeln!(f, "{line}")?;
        for row in 0..self.rows.len() {
            write_row(f, &self.columns, &widths, |column| &column.cells[row])?;
        }
        writeln!(f, "{line}")?;
        if !given_up.is_empty() {
            writeln!(f, "no room for {}", given_up.join(", "))?;
        }
        if left_out > 0 {
            writeln!(f, "{left_out} more rows")?;
        }
        Ok(())
    }
}

impl Column {
    /// Text is cut to no less.
    const LEAST: usize = 16;
    /// Columns that can be spared go before text is cut to less than this.
    const LEGIBLE: usize = 22;

    /// The column can be spared where there is no room: the one that is to go first is 1.
    pub(super) fn spare(&mut self, turn: u8) {
        self.spare = Some(turn);
    }

    fn width(&self) -> usize {
        self.cells.iter().map(|cell| cell.width()).max().unwrap_or(0).max(self.title.width())
    }

    fn legible_width(&self) -> usize {
        if self.text { self.width().min(Self::LEGIBLE) } else { self.width() }
    }
}

/// Takes out columns that can be spared until the others have room. Returns their titles, the first to go first.
fn give_up(columns: &mut Vec<Column>, available: usize) -> Vec<&'static str> {
    let mut given_up = Vec::new();
    while columns.iter().map(|column| column.legible_width() + 2).sum::<usize>() > available + 2 {
        let spare = columns.iter().enumerate().filter_map(|(place, column)| Some((column.spare?, place))).min();
        let Some((_, place)) = spare else { break };
        given_up.push(columns.remove(place).title);
    }
    given_up
}

/// How wide each column is: as wide as it wants, but for text that must give way.
fn widths(columns: &[Column], available: usize) -> Vec<usize> {
    let mut widths: Vec<_> = columns.iter().map(Column::width).collect();
    let gaps = 2 * (columns.len() - 1);
    let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(available);
    while excess > 0 {
        let widest = (0..columns.len()).filter(|&column| columns[column].text).max_by_key(|&column| widths[column]);
        match widest {
            Some(column) if widths[column] > Column::LEAST => {
                widths[column] -= 1;
                excess -= 1;
            }
            _ => break,
        }
    }
    widths
}

fn write_row<'a>(
    f: &mut fmt::Formatter<'_>,
    columns: &'a [Column],
    widths: &[usize],
    cell: impl Fn(&'a Column) -> &'a str,
) -> fmt::Result {
    let mut line = String::new();
    for (place, (column, &width)) in columns.iter().zip(widths).enumerate() {
        let cell = shorten(cell(column), width);
        let padding = " ".repeat(width.saturating_sub(cell.width()));
        let (before, after) = if column.text { ("", padding.as_str()) } else { (padding.as_str(), "") };
        write!(line, "{}{before}{cell}{after}", if place == 0 { "" } else { "  " })?;
    }
    writeln!(f, "{}", line.trim_end())
}

/// Cuts out the middle: both ends of a path tell more.
fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    // A text can be wider than its characters one by one, so it is the text that is measured.
    let characters: Vec<_> = text.chars().collect();
    let middle = |cut: usize| {
        let kept = characters.len() - cut;
        let (head, tail) = (&characters[..kept / 2], &characters[characters.len() - (kept - kept / 2)..]);
        head.iter().chain(&['…']).chain(tail).collect::<String>()
    };
    let least = characters.len().saturating_sub(width);
    (least..=characters.len()).map(middle).find(|text| text.width() <= width).unwrap_or_default()
}

/// The width of the terminal that standard output is, or 120.
pub(super) fn terminal_width() -> usize {
    const DEFAULT: usize = 120;
    #[cfg(unix)]
    let width = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    #[cfg(not(unix))]
    let width = None;
    width.filter(|&width| width > 0).unwrap_or(DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::{Table, shorten};
    use std::fmt;
    use unicode_width::UnicodeWidthStr;

    struct Sizes(Vec<(&'static str, u32)>, usize);

    impl fmt::Display for Sizes {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let mut table = Table::new(&self.0);
            table.text("Name", |row| row.0.to_owned());
            table.number("Size", |row| row.1.to_string());
            table.number("Twice the size", |row| (2 * row.1).to_string()).spare(2);
            table.number("Half the size", |row| (row.1 / 2).to_string()).spare(1);
            table.write(f, 1, self.1)
        }
    }

    #[test]
    fn columns_that_can_be_spared_go_before_names_are_illegible() {
        let rows = vec![("a name of thirty-two characters.", 8), ("b\n", 10)];
        let first = |width| Sizes(rows.clone(), width).to_string().lines().nth(3).unwrap_or_default().to_owned();
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
no room for Half the size, Twice the size
1 more rows
"
        );
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(shorten("forward", 7), "forward");
        assert_eq!(shorten("model::layers::attention", 11), "model…ntion");
        for width in 1..12 {
            assert!(shorten("模型::注意力::层", width).width() <= width);
            assert!(shorten("gears ⚙️⚙️⚙️ \u{7} and more", width).width() <= width);
        }
    }
}
