//! The table, made to be read in a terminal: numbers to the right, names cut in the middle when there is no room.

use super::{Average, units};
use std::fmt::{self, Write};
use unicode_width::UnicodeWidthStr;

struct Column {
    title: &'static str,
    cells: Vec<String>,
    /// Text is to the left and may be cut; numbers are to the right and may not.
    text: bool,
}

impl Column {
    fn width(&self) -> usize {
        self.cells.iter().map(|cell| cell.width()).max().unwrap_or(0).max(self.title.width())
    }
}

pub(super) fn write(f: &mut fmt::Formatter<'_>, rows: &[Average], left_out: usize, width: usize) -> fmt::Result {
    if rows.is_empty() {
        return writeln!(f, "no spans were recorded");
    }
    let columns = columns(rows);
    let widths = widths(&columns, width);
    let line: String = widths.iter().map(|&width| "-".repeat(width)).collect::<Vec<_>>().join("  ");
    writeln!(f, "{line}")?;
    write_row(f, &columns, &widths, |column| column.title)?;
    writeln!(f, "{line}")?;
    for row in 0..rows.len() {
        write_row(f, &columns, &widths, |column| &column.cells[row])?;
    }
    writeln!(f, "{line}")?;
    if left_out > 0 {
        writeln!(f, "{left_out} more rows")?;
    }
    Ok(())
}

fn columns(rows: &[Average]) -> Vec<Column> {
    // No name, shape or stack may break a line.
    let clean = |cell: String| cell.replace(|c: char| c.is_control(), " ");
    let number = |title, cell: &dyn Fn(&Average) -> String| Column {
        title,
        cells: rows.iter().map(cell).map(clean).collect(),
        text: false,
    };
    let text = |title, cell: &dyn Fn(&Average) -> String| Column { text: true, ..number(title, cell) };
    let mut columns = vec![
        text("Name", &|row| label(row, rows)),
        number("Self CPU %", &|row| units::percent(row.self_percent)),
        number("Self CPU", &|row| units::time(row.self_cpu)),
        number("CPU total %", &|row| units::percent(row.total_percent)),
        number("CPU total", &|row| units::time(row.total_cpu)),
        number("CPU time avg", &|row| units::time(row.average_cpu)),
        number("# of Calls", &|row| row.calls.to_string()),
    ];
    if rows.iter().any(|row| row.shapes.is_some()) {
        columns.push(text("Input Shapes", &|row| row.shapes.clone().unwrap_or_default()));
    }
    if rows.iter().any(|row| !row.stack.is_empty()) {
        columns.push(text("Inside", &|row| row.stack.join(" < ")));
    }
    if rows.iter().any(|row| row.flops > 0) {
        columns.push(number("Total FLOPs", &|row| units::count(row.flops)));
    }
    if rows.iter().any(|row| row.bytes > 0) {
        columns.push(number("Total Bytes", &|row| units::count(row.bytes)));
    }
    columns
}

/// The name, with the target before it where another row has the same name.
fn label(row: &Average, rows: &[Average]) -> String {
    let same = |other: &&Average| other.name == row.name && other.target != row.target;
    match rows.iter().find(same) {
        Some(_) => format!("{}::{}", row.target, row.name),
        None => row.name.clone(),
    }
}

/// How wide each column is: as wide as it wants, but for text that must give way.
fn widths(columns: &[Column], available: usize) -> Vec<usize> {
    const LEAST: usize = 16;
    let mut widths: Vec<_> = columns.iter().map(Column::width).collect();
    let gaps = 2 * (columns.len() - 1);
    let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(available);
    while excess > 0 {
        let widest = (0..columns.len()).filter(|&column| columns[column].text).max_by_key(|&column| widths[column]);
        match widest {
            Some(column) if widths[column] > LEAST => {
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
    use super::{Average, shorten};
    use std::{fmt, time::Duration};
    use unicode_width::UnicodeWidthStr;

    fn row(name: &str, micros: u64, calls: u64) -> Average {
        Average {
            name: name.to_owned(),
            target: "model".to_owned(),
            location: None,
            shapes: None,
            stack: Vec::new(),
            calls,
            self_cpu: Duration::from_micros(micros / 2),
            total_cpu: Duration::from_micros(micros),
            average_cpu: Duration::from_micros(micros / calls),
            longest_cpu: Duration::ZERO,
            self_percent: 12.5,
            total_percent: 25.0,
            flops: 0,
            bytes: 0,
        }
    }

    fn table(rows: &[Average], left_out: usize, width: usize) -> String {
        struct Table<'a>(&'a [Average], usize, usize);
        impl fmt::Display for Table<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                super::write(f, self.0, self.1, self.2)
            }
        }
        format!("\n{}", Table(rows, left_out, width))
    }

    #[test]
    fn numbers_are_to_the_right_and_names_to_the_left() {
        let rows = [row("train_step", 12_000, 3), row("模型", 600, 60)];
        assert_eq!(
            table(&rows, 2, 120),
            "
----------  ----------  ---------  -----------  ---------  ------------  ----------
Name        Self CPU %   Self CPU  CPU total %  CPU total  CPU time avg  # of Calls
----------  ----------  ---------  -----------  ---------  ------------  ----------
train_step      12.50%    6.000ms       25.00%   12.000ms       4.000ms           3
模型            12.50%  300.000µs       25.00%  600.000µs      10.000µs          60
----------  ----------  ---------  -----------  ---------  ------------  ----------
2 more rows
"
        );
    }

    #[test]
    fn columns_that_say_nothing_are_left_out_and_others_give_way() {
        let mut rows = [row("model::layers::0::attention::query", 12_000, 3), row("model::layers::0::mlp", 600, 60)];
        rows[0].shapes = Some("[64, 512], [512, 512]".to_owned());
        rows[0].flops = 33_554_432;
        assert_eq!(
            table(&rows, 0, 132),
            "
-----------------------  ----------  ---------  -----------  ---------  ------------  ----------  ---------------------  -----------
Name                     Self CPU %   Self CPU  CPU total %  CPU total  CPU time avg  # of Calls  Input Shapes           Total FLOPs
-----------------------  ----------  ---------  -----------  ---------  ------------  ----------  ---------------------  -----------
model::laye…tion::query      12.50%    6.000ms       25.00%   12.000ms       4.000ms           3  [64, 512], [512, 512]      33.554M
model::layers::0::mlp        12.50%  300.000µs       25.00%  600.000µs      10.000µs          60                                  --
-----------------------  ----------  ---------  -----------  ---------  ------------  ----------  ---------------------  -----------
"
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let rows = [row(&"x".repeat(500), 1, 1), row("y", 1, 1)];
        for width in [90, 100, 200, 700] {
            assert!(table(&rows, 0, width).lines().all(|line| line.width() <= width), "{width}");
        }
    }

    #[test]
    fn rows_of_one_name_say_where_they_are_from() {
        let mut rows = [row("forward", 2, 1), row("forward", 1, 1), row("other", 1, 1)];
        rows[1].target = "loss".to_owned();
        let table = table(&rows, 0, 120);
        assert!(["model::forward ", "loss::forward ", "\nother "].iter().all(|name| table.contains(name)), "{table}");
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
