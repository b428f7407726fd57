//! The names in a page, each once.

use crate::{export::json::Array, report::Averages};
use std::collections::HashMap;

/// The names of spans and kernels in a page, each once. Rows refer to them by their index.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    indices: HashMap<Box<str>, usize>,
    names: Vec<Box<str>>,
}

impl Names {
    /// The most characters of a name. Templates of C++ can have many thousands.
    const LONGEST: usize = 1_000;
    /// The most names. Later ones are all called [`Averages::OTHERS`].
    const MOST: usize = 50_000;

    /// Returns the index of a name.
    pub(super) fn index(&mut self, name: &str) -> usize {
        if let Some(&index) = self.indices.get(name) {
            return index;
        }
        if self.names.len() >= Self::MOST && name != Averages::OTHERS {
            return self.index(Averages::OTHERS);
        }
        let shown = match name.char_indices().nth(Self::LONGEST) {
            Some((end, _)) => format!("{}…", &name[..end]),
            None => name.to_owned(),
        };
        self.names.push(shown.into());
        self.indices.insert(name.into(), self.names.len() - 1);
        self.names.len() - 1
    }

    pub(super) fn write(&self, array: &mut Array<'_>) {
        self.names.iter().for_each(|name| array.string(name));
    }
}
