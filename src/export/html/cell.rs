//! Cells and columns of tables.

use super::packed::Names;
use crate::{
    export::json::{Array, Object},
    report::short_functions,
};
use std::{collections::BTreeMap, time::Duration};

/// The value of a cell. The page formats it by the unit of its column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// An index into the names of the page.
    Name(usize),
    Text(String),
    Integer(i128),
    Float(f64),
    /// A number that is known to three digits only.
    Rough(i128),
    Missing,
}

impl Cell {
    pub(super) fn write(&self, array: &mut Array<'_>) {
        match self {
            Self::Name(index) => array.number(*index),
            Self::Text(text) => array.string(text),
            Self::Integer(number) => array.number(*number),
            Self::Float(number) if number.is_finite() => array.float(*number),
            Self::Rough(number) => array.array(|rough| rough.number(*number)),
            Self::Float(_) | Self::Missing => array.null(),
        }
    }

    /// Whether it is empty: a column of such cells is left out.
    fn is_nothing(&self) -> bool {
        match self {
            Self::Missing | Self::Integer(0) | Self::Rough(0) => true,
            Self::Text(text) => text.is_empty(),
            Self::Float(number) => *number == 0.0,
            Self::Name(_) | Self::Integer(_) | Self::Rough(_) => false,
        }
    }
}

impl From<Duration> for Cell {
    fn from(time: Duration) -> Self {
        Self::Integer(i128::try_from(time.as_nanos()).unwrap_or(i128::MAX))
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Integer(number.into())
    }
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Integer(number.into())
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Missing, Into::into)
    }
}

/// The unit of a column, which determines how its cells are printed: as in the tables of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Name,
    /// The name of a function, which is shown in its short form.
    Function,
    Text,
    /// A short text, whose column need not be wide.
    Word,
    Number,
    Time,
    /// A time that adds up to that of all rows.
    Total,
    Percent,
    /// A percentage with three digits.
    Share,
    Memory,
    /// A large number, with three digits and a prefix.
    Count,
    /// Floating-point operations, and those per second.
    Flops,
    FlopRate,
    /// Bytes per second.
    Bandwidth,
    /// A large number, with three digits and a prefix.
    Rate,
}

impl Unit {
    fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Function => "function",
            Self::Text => "text",
            Self::Word => "word",
            Self::Number => "number",
            Self::Time => "time",
            Self::Total => "total",
            Self::Percent => "percent",
            Self::Share => "share",
            Self::Memory => "memory",
            Self::Count => "count",
            Self::Flops => "flops",
            Self::FlopRate => "flopRate",
            Self::Bandwidth => "bandwidth",
            Self::Rate => "rate",
        }
    }
}

/// A table in the page: sorted, searched and formatted by the browser.
#[derive(Debug, Default)]
pub(super) struct Grid {
    columns: Vec<(&'static str, Unit, &'static str)>,
    /// The cells of each column.
    cells: Vec<Vec<Cell>>,
    /// The parent of each row, if the table is a tree.
    parents: Option<Vec<Option<usize>>>,
    /// The short forms of the names of functions, by their indices.
    short: BTreeMap<usize, String>,
    /// The rows to highlight.
    marked: Vec<usize>,
    /// The number of rows left out of the page.
    left_out: usize,
}

impl Grid {
    /// Adds a column with a name for each row.
    pub(super) fn names<R>(&mut self, title: &'static str, rows: &[R], names: &mut Names, of: impl Fn(&R) -> &str) {
        self.columns.push((title, Unit::Name, ""));
        self.cells.push(rows.iter().map(|row| Cell::Name(names.index(of(row)))).collect());
    }

    /// Adds a column with a kernel or a copy for each row.
    pub(super) fn kernels<R>(&mut self, title: &'static str, rows: &[R], names: &mut Names, of: impl Fn(&R) -> &str) {
        self.columns.push((title, Unit::Name, ""));
        self.cells.push(rows.iter().map(|row| Cell::Name(names.work(of(row)))).collect());
    }

    /// Adds a column with a function for each row.
    pub(super) fn functions<R>(&mut self, title: &'static str, rows: &[R], names: &mut Names, of: impl Fn(&R) -> &str) {
        self.columns.push((title, Unit::Function, ""));
        let indices: Vec<usize> = rows.iter().map(|row| names.index(of(row))).collect();
        let full: Vec<&str> = indices.iter().map(|&index| names.get(index)).collect();
        let short = indices.iter().copied().zip(short_functions(&full));
        self.short.extend(short.filter(|(index, short)| short != names.get(*index)));
        self.cells.push(indices.into_iter().map(Cell::Name).collect());
    }

    /// Adds a column, unless it is empty in all rows.
    pub(super) fn column<R, C: Into<Cell>>(
        &mut self,
        (title, unit, help): (&'static str, Unit, &'static str),
        rows: &[R],
        of: impl Fn(&R) -> C,
    ) {
        let cells: Vec<Cell> = rows.iter().map(|row| of(row).into()).collect();
        if cells.iter().any(|cell| !cell.is_nothing()) {
            self.columns.push((title, unit, help));
            self.cells.push(cells);
        }
    }

    /// Makes the table a tree. A parent comes before its children.
    pub(super) fn tree(&mut self, parents: Vec<Option<usize>>) {
        self.parents = Some(parents);
    }

    /// Marks the rows to highlight.
    pub(super) fn mark(&mut self, rows: Vec<usize>) {
        self.marked = rows;
    }

    pub(super) fn left_out(&mut self, rows: usize) {
        self.left_out = rows;
    }

    pub(super) fn write(&self, section: &mut Object<'_>) {
        section.array("columns", |array| {
            for (title, unit, help) in &self.columns {
                array.array(|column| [title, unit.as_str(), help].iter().for_each(|text| column.string(text)));
            }
        });
        let rows = self.cells.first().map_or(0, Vec::len);
        section.array_of_lines("rows", |array| {
            for row in 0..rows {
                array.array(|cells| self.cells.iter().for_each(|column| column[row].write(cells)));
            }
        });
        if let Some(parents) = &self.parents {
            let index = |parent: &Option<usize>| parent.map_or(-1, |parent| parent as i64);
            section.array("parents", |array| parents.iter().for_each(|parent| array.number(index(parent))));
        }
        if !self.short.is_empty() {
            section.array("short", |list| {
                for (index, short) in &self.short {
                    list.array(|pair| {
                        pair.number(*index);
                        pair.string(short);
                    });
                }
            });
        }
        if !self.marked.is_empty() {
            section.array("marked", |array| self.marked.iter().for_each(|&row| array.number(row)));
        }
        section.number("leftOut", self.left_out);
    }
}
