//! HTML pages.

use crate::{fault::Fault, file};
use kernspan::{export::HtmlDocument, report::short_kernels};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

/// An HTML page made of sections: see [`HtmlDocument`].
#[derive(Debug, Default)]
pub(crate) struct Page {
    title: String,
    sections: Vec<Value>,
    names: Vec<String>,
    indices: HashMap<String, usize>,
    /// The numbers of the names of kernels.
    kernels: BTreeSet<usize>,
}

/// A table on a page: columns with a title, a unit and a help text, and rows.
#[derive(Debug, Default)]
pub(crate) struct Table {
    columns: Vec<Value>,
    cells: Vec<Vec<Value>>,
}

impl Page {
    pub(crate) fn new(title: &str) -> Self {
        Self { title: format!("{title} – kernspan"), ..Self::default() }
    }

    /// The maximum length of a name in characters: template kernels have very long ones.
    const NAME: usize = 1_000;

    /// Returns the number of a name, by which sections refer to it.
    pub(crate) fn name(&mut self, name: &str) -> usize {
        let name = match name.char_indices().nth(Self::NAME) {
            Some((end, _)) => &format!("{}…", &name[..end]),
            None => name,
        };
        if let Some(&index) = self.indices.get(name) {
            return index;
        }
        self.names.push(name.to_owned());
        self.indices.insert(name.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }

    /// Returns the number of the name of a kernel or a copy, which is shown in its short form.
    pub(crate) fn kernel(&mut self, name: &str) -> usize {
        let index = self.name(name);
        self.kernels.insert(index);
        index
    }

    /// Adds a section.
    pub(crate) fn push(&mut self, id: &str, title: &str, kind: &str, members: Value) {
        self.sections.push(section(id, title, kind, members));
    }

    /// Writes the page. `text` is for browsers without scripts.
    pub(crate) fn write(self, path: &Path, text: &str) -> Result<(), Fault> {
        let made = concat!("Made by kernspan ", env!("CARGO_PKG_VERSION"), ".");
        let Self { title, sections, names, kernels, .. } = self;
        let full: Vec<&String> = kernels.iter().map(|&index| &names[index]).collect();
        let short: Vec<_> = kernels.iter().zip(short_kernels(&full)).collect();
        let json =
            json!({"format": 1, "title": title, "made": made, "names": names, "short": short, "sections": sections});
        file::write(path, |out| write!(out, "{}", HtmlDocument::new(&title, &json.to_string(), text)))
    }
}

/// Returns a section, which can be one of several side by side.
pub(crate) fn section(id: &str, title: &str, kind: &str, members: Value) -> Value {
    let mut section = Map::new();
    section.extend([("id", id), ("title", title), ("kind", kind)].map(|(key, text)| (key.to_owned(), text.into())));
    if let Value::Object(members) = members {
        section.extend(members);
    }
    Value::Object(section)
}

impl Table {
    /// Adds a column, unless all its cells are missing or empty.
    pub(crate) fn column<R>(
        &mut self,
        (title, unit, help): (&str, &str, &str),
        rows: &[R],
        cell: impl Fn(&R) -> Value,
    ) {
        let cells: Vec<_> = rows.iter().map(cell).collect();
        if cells.is_empty() || cells.iter().any(|cell| !cell.is_null() && cell != "") {
            self.columns.push(json!([title, unit, help]));
            self.cells.push(cells);
        }
    }

    /// Returns the members of the section.
    pub(crate) fn members(self) -> Value {
        let rows = self.cells.first().map_or(0, Vec::len);
        let row = |row: usize| -> Value { self.cells.iter().map(|column| column[row].clone()).collect() };
        json!({"columns": self.columns, "rows": (0..rows).map(row).collect::<Value>(), "leftOut": 0})
    }
}
