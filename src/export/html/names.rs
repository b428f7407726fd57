//! The names in a page, without duplicates.

use crate::{export::json::Array, report::Averages};
use std::{collections::HashMap, sync::Arc};

/// The names of spans and kernels in a page, without duplicates. Rows refer to them by index.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    indices: HashMap<Arc<str>, usize>,
    /// The names as they are shown.
    names: Vec<Arc<str>>,
    /// The bytes of all names.
    bytes: usize,
}

impl Names {
    /// The maximum length of a name in characters. C++ templates can have many thousands.
    const LONGEST: usize = 1_000;
    /// The maximum number of names. Later ones are all called [`Averages::OTHERS`].
    const MOST: usize = 50_000;
    /// The maximum size of all names in bytes: a few hundred for each of the kernels and operations that a page shows.
    const BYTES: usize = 4 << 20;

    /// Returns the index of a name. Names that look alike once truncated share one.
    pub(super) fn index(&mut self, name: &str) -> usize {
        let cut = || name.char_indices().nth(Self::LONGEST).map(|(end, _)| format!("{}…", &name[..end]));
        let cut = if name.len() > Self::LONGEST { cut() } else { None };
        let name = cut.as_deref().unwrap_or(name);
        if let Some(&index) = self.indices.get(name) {
            return index;
        }
        let is_full = self.names.len() >= Self::MOST || self.bytes.saturating_add(name.len()) > Self::BYTES;
        if is_full && name != Averages::OTHERS {
            return self.index(Averages::OTHERS);
        }
        let name: Arc<str> = name.into();
        self.bytes = self.bytes.saturating_add(name.len());
        self.names.push(Arc::clone(&name));
        self.indices.insert(name, self.names.len() - 1);
        self.names.len() - 1
    }

    /// Returns the name with this index.
    pub(super) fn get(&self, index: usize) -> &str {
        &self.names[index]
    }

    pub(super) fn write(&self, array: &mut Array<'_>) {
        self.names.iter().for_each(|name| array.string(name));
    }
}

/// Returns a path as text. `names` are those of its spans, from the inside out. The middle of a deep path is left out.
pub(super) fn shortened_path<'a>(names: impl Iterator<Item = &'a str>) -> String {
    /// Names that are shown at the inner end: as many as fit a line.
    const INNER: usize = 20;
    let mut names = names.fuse();
    let mut shown: Vec<_> = names.by_ref().take(INNER).map(str::to_owned).collect();
    let mut outermost = None;
    let left_out = names.inspect(|name| outermost = Some((*name).to_owned())).count().saturating_sub(1);
    if left_out > 0 {
        shown.push(format!("… ({left_out} more)"));
    }
    shown.extend(outermost);
    shown.reverse();
    shown.join(" › ")
}

#[cfg(test)]
mod tests {
    use super::{Names, shortened_path};
    use crate::report::Averages;

    #[test]
    fn names_take_bounded_memory() {
        let mut names = Names::default();
        let indices: Vec<_> =
            (0..10_000).map(|number| names.index(&format!("{number}{}", "x".repeat(5_000)))).collect();
        assert!(names.bytes <= Names::BYTES + Averages::OTHERS.len(), "{}", names.bytes);
        assert_eq!(names.get(indices[0]).chars().count(), Names::LONGEST + 1);
        assert_eq!(names.get(indices[9_999]), Averages::OTHERS);
    }

    #[test]
    fn the_middle_of_a_deep_path_is_left_out() {
        let path = |depth: usize| shortened_path((0..depth).rev().map(|_| "f"));
        assert_eq!(path(3), "f › f › f");
        assert_eq!(path(21).matches('f').count(), 21);
        assert!(path(1_000).starts_with("f › … (979 more) › f › "), "{}", path(1_000));
    }
}
