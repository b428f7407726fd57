//! Tables as text, Markdown, CSV or JSON.

use crate::{fault::Fault, json::flat};
use kernspan::report::Table;
use serde_json::{Map, Value};
use std::io::{self, Write};

/// The arguments that say how tables are printed.
#[derive(clap::Args)]
pub(crate) struct Style {
    /// Output format. JSON and CSV have times in nanoseconds, and all rows unless --limit is given
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Same as `--format json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Width of tables in characters [default: that of the terminal, or 120]
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) width: Option<usize>,
    /// Print names in full, however wide the tables become. By default, kernels have short names. JSON and CSV always
    /// have full names
    #[arg(long, conflicts_with = "width")]
    full_names: bool,
}

/// Parses the most rows of a table: a table without any would look as if nothing had been recorded.
pub(crate) fn limit(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&rows| rows > 0).ok_or_else(|| "expected a number of at least 1".to_owned())
}

/// The format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Tables for a terminal
    #[default]
    Text,
    /// One object with a list of rows for each table
    Json,
    /// Markdown tables
    Md,
    /// Comma-separated values of a single table
    Csv,
}

impl Style {
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    /// Whether the output is text for a terminal.
    pub(crate) fn is_text(&self) -> bool {
        self.format() == Format::Text
    }

    /// Returns the number of rows that a table has: `limit`, or else all in formats for programs, and `by_default` in
    /// formats for people.
    pub(crate) fn rows(&self, limit: Option<usize>, by_default: usize) -> usize {
        limit.unwrap_or(match self.format() {
            Format::Text | Format::Md => by_default,
            Format::Json | Format::Csv => usize::MAX,
        })
    }

    /// Sets the width of a table.
    fn fit(&self, table: Table) -> Table {
        match self.width {
            _ if self.full_names => table.full_names(),
            Some(columns) => table.width(columns),
            None => table.fit_terminal(),
        }
    }

    /// Prints the sections, one after the other.
    pub(crate) fn print(&self, sections: &[Section]) -> Result<(), Fault> {
        // It leaves colours out where there is no terminal.
        let mut out = anstream::AutoStream::auto(io::stdout().lock());
        match self.format() {
            Format::Text => {
                for (index, section) in sections.iter().enumerate() {
                    write!(out, "{}{}", if index == 0 { "" } else { "\n" }, self.text(section))?;
                }
            }
            Format::Md => {
                for (index, section) in sections.iter().enumerate() {
                    write!(out, "{}{}", if index == 0 { "" } else { "\n" }, markdown(section, self.full_names))?;
                }
            }
            Format::Json => {
                let mut members = Map::new();
                for section in sections {
                    let rows = members.entry(section.key).or_insert_with(|| Value::Array(Vec::new()));
                    if let Value::Array(rows) = rows {
                        rows.extend(section.rows.iter().cloned());
                    }
                    members.extend(section.members.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
                }
                return print_json(&Value::Object(members));
            }
            Format::Csv => {
                let Some(first) = sections.first() else { return Ok(()) };
                if sections.iter().any(|section| section.key != first.key) {
                    let message = "CSV holds a single table: select one, such as --kernels".to_owned();
                    return Err(Fault::Usage(message));
                }
                write!(out, "{}", csv(sections.iter().flat_map(|section| &section.rows)))?;
            }
        }
        Ok(out.flush()?)
    }

    /// Returns the sections as plain text, whatever the format.
    pub(crate) fn plain(&self, sections: &[Section]) -> String {
        let text = |section: &Section| {
            let table = section.table.as_ref().map_or_else(|| lines(section.empty), ToString::to_string);
            table + &lines(&section.below)
        };
        sections.iter().map(text).collect::<Vec<_>>().join("\n")
    }

    fn text(&self, section: &Section) -> String {
        let table = match &section.table {
            Some(table) => paint(&self.fit(table.clone()).to_string(), &section.marked),
            None => lines(section.empty),
        };
        table + &lines(&section.below)
    }
}

/// A table, and the lines around it.
#[derive(Default)]
pub(crate) struct Section {
    /// The title in Markdown.
    pub(crate) title: String,
    /// The member of the JSON object that has the rows.
    pub(crate) key: &'static str,
    /// `None` if there are no rows.
    pub(crate) table: Option<Table>,
    /// The text in place of a table without rows.
    pub(crate) empty: &'static str,
    /// The rows for JSON and CSV.
    pub(crate) rows: Vec<Value>,
    /// More members of the JSON object.
    pub(crate) members: Vec<(&'static str, Value)>,
    /// The lines below the table.
    pub(crate) below: String,
    /// The indices of the rows that stand out on a terminal.
    pub(crate) marked: Vec<usize>,
}

/// Prints a value as indented JSON.
pub(crate) fn print_json(value: &Value) -> Result<(), Fault> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Returns the text with a newline at its end, or nothing if it is empty.
fn lines(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// Makes the titles of a printed table bold, and the marked rows yellow.
fn paint(table: &str, marked: &[usize]) -> String {
    let is_rule = |line: &&str| line.starts_with('-') && line.chars().all(|c| c == '-' || c == ' ');
    let titles = table.lines().take_while(|line| !is_rule(line)).count() + 1;
    // A rule is between the titles and the rows.
    let first = titles + 2;
    let mut painted = String::new();
    for (index, line) in table.lines().enumerate() {
        let (start, end) = match index.checked_sub(first) {
            None if index == titles => ("\x1b[1m", "\x1b[0m"),
            Some(row) if marked.contains(&row) => ("\x1b[33m", "\x1b[0m"),
            _ => ("", ""),
        };
        painted.extend([start, line, end, "\n"]);
    }
    painted
}

fn markdown(section: &Section, full_names: bool) -> String {
    let mut text = format!("## {}\n\n", section.title);
    // Two spaces at its end keep a line apart from the next.
    let paragraph = |lines: &str| lines.trim().lines().collect::<Vec<_>>().join("  \n") + "\n";
    let full = |table: Table| if full_names { table.full_names() } else { table };
    match section.table.clone().map(full) {
        Some(table) => {
            if let Some(above) = table.line_above() {
                text += &format!("{above}\n\n");
            }
            text += &markdown_table(&table);
            let below: Vec<_> = table.lines_below().collect();
            if !below.is_empty() {
                text += &format!("\n{}", paragraph(&below.join("\n")));
            }
        }
        None => text += &lines(section.empty),
    }
    if !section.below.is_empty() {
        text += &format!("\n{}", paragraph(&section.below));
    }
    text
}

fn markdown_table(table: &Table) -> String {
    let columns: Vec<_> = table.columns().collect();
    let escape = |cell: &str| cell.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*");
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = row(columns.iter().map(|column| escape(column.title())).collect());
    text += &row(columns.iter().map(|it| (if it.is_text() { ":---" } else { "---:" }).to_owned()).collect());
    for index in 0..columns.first().map_or(0, |column| column.cells().len()) {
        text += &row(columns.iter().map(|column| escape(&column.cells()[index])).collect());
    }
    text
}

/// Returns the rows as CSV, by the rules of RFC 4180 but for line ends, with all fields that any row has.
fn csv<'a>(rows: impl Iterator<Item = &'a Value>) -> String {
    let quoted = |field: &str| match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    };
    let rows: Vec<_> = rows.map(flat).collect();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flatten() {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    // A row in which an object is missing has one empty field in its place.
    let is_parent = |name: &str| names.iter().any(|other| other.starts_with(&format!("{name}.")));
    let names: Vec<_> = names.iter().filter(|name| !is_parent(name)).collect();
    let line = |fields: Vec<String>| fields.join(",") + "\n";
    let mut text = line(names.iter().map(|name| quoted(name)).collect());
    for row in &rows {
        let field = |name: &str| row.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value);
        text += &line(names.iter().map(|name| quoted(field(name))).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::csv;
    use serde_json::json;

    #[test]
    fn csv_has_the_fields_of_all_rows() {
        let rows = [json!({"name": "a, b", "latency": null}), json!({"name": "\"c\"", "latency": {"p50": 1}})];
        assert_eq!(csv(rows.iter()), "name,latency.p50\n\"a, b\",\n\"\"\"c\"\"\",1\n");
    }
}
