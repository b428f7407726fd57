//! The rows of a table in memory, column by column.

use crate::schema::{Kind, Table};
use kernspan::trace::Timestamp;
use std::{cmp::Ordering, collections::HashMap, time::Duration};

/// The value of a column in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cell<'a> {
    /// A number, or nanoseconds.
    Int(i64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(&'a str),
}

/// Rows of one table.
///
/// ```
/// use kernspan_parquet::{Rows, schema};
///
/// let mut rows = Rows::new(&schema::KERNELS);
/// let key = [0.into(), 7.into(), "gemm".into(), "kernel".into()]; // Of rank 0 in step 7.
/// rows.push(&[&key[..], &[2, 9, 4, 5, 0].map(Into::into)].concat());
/// assert_eq!(rows.len(), 1);
/// ```
#[derive(Debug)]
pub struct Rows {
    table: &'static Table,
    columns: Vec<Values>,
    len: usize,
    texts: Vec<Box<str>>,
    text_numbers: HashMap<Box<str>, u32>,
}

/// The values of a column. A text is a number, as most occur many times.
#[derive(Debug)]
pub(crate) enum Values {
    Int(Vec<i64>),
    Bool(Vec<bool>),
    Text(Vec<u32>),
}

impl Rows {
    /// Creates a table without rows.
    pub fn new(table: &'static Table) -> Self {
        let columns = table.columns.iter().map(|column| match column.kind {
            Kind::Int => Values::Int(Vec::new()),
            Kind::Bool => Values::Bool(Vec::new()),
            Kind::Text => Values::Text(Vec::new()),
        });
        Self { table, columns: columns.collect(), len: 0, texts: Vec::new(), text_numbers: HashMap::new() }
    }

    /// Adds a row: a cell for each column, of its type. A cell that is missing or of another type becomes 0, false or
    /// an empty text.
    pub fn push(&mut self, cells: &[Cell<'_>]) {
        debug_assert_eq!(cells.len(), self.columns.len(), "{}", self.table.name);
        for (index, column) in self.columns.iter_mut().enumerate() {
            let cell = cells.get(index);
            match (column, cell) {
                (Values::Int(values), Some(Cell::Int(value))) => values.push(*value),
                (Values::Bool(values), Some(Cell::Bool(value))) => values.push(*value),
                (Values::Text(values), Some(Cell::Text(text))) => {
                    values.push(number_of(text, &mut self.texts, &mut self.text_numbers));
                }
                (column, _) => {
                    debug_assert!(false, "{}: a wrong type in column {index}", self.table.name);
                    match column {
                        Values::Int(values) => values.push(0),
                        Values::Bool(values) => values.push(false),
                        Values::Text(values) => values.push(number_of("", &mut self.texts, &mut self.text_numbers)),
                    }
                }
            }
        }
        self.len += 1;
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the table that these are rows of.
    pub fn table(&self) -> &'static Table {
        self.table
    }

    /// Returns the cell of a row and a column.
    pub fn cell(&self, row: usize, column: usize) -> Option<Cell<'_>> {
        Some(match self.columns.get(column)? {
            Values::Int(values) => Cell::Int(*values.get(row)?),
            Values::Bool(values) => Cell::Bool(*values.get(row)?),
            Values::Text(values) => Cell::Text(self.text(*values.get(row)?)),
        })
    }

    pub(crate) fn columns(&self) -> &[Values] {
        &self.columns
    }

    pub(crate) fn texts(&self) -> &[Box<str>] {
        &self.texts
    }

    fn text(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("", |text| text)
    }

    /// Returns the indices of the rows in the order of the table.
    pub(crate) fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.len).collect();
        let keys = &self.columns[..self.table.sorted_by.min(self.columns.len())];
        let compare = |&a: &usize, &b: &usize| {
            let by_column = |column: &Values| match column {
                Values::Int(values) => values[a].cmp(&values[b]),
                Values::Bool(values) => values[a].cmp(&values[b]),
                Values::Text(values) if values[a] == values[b] => Ordering::Equal,
                Values::Text(values) => self.text(values[a]).cmp(self.text(values[b])),
            };
            keys.iter().map(by_column).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        };
        if !order.is_sorted_by(|a, b| compare(a, b).is_le()) {
            order.sort_by(compare);
        }
        order
    }
}

fn number_of(text: &str, texts: &mut Vec<Box<str>>, numbers: &mut HashMap<Box<str>, u32>) -> u32 {
    if let Some(&number) = numbers.get(text) {
        return number;
    }
    let number = u32::try_from(texts.len()).unwrap_or(u32::MAX);
    texts.push(text.into());
    numbers.insert(text.into(), number);
    number
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Cell<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i32> for Cell<'_> {
    fn from(value: i32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<i64> for Cell<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u32> for Cell<'_> {
    fn from(value: u32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<u64> for Cell<'_> {
    fn from(value: u64) -> Self {
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<Duration> for Cell<'_> {
    fn from(value: Duration) -> Self {
        Self::Int(i64::try_from(value.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl From<Timestamp> for Cell<'_> {
    fn from(value: Timestamp) -> Self {
        value.as_unix_nanos().into()
    }
}
