//! The options of a document.

use super::flavor::Flavor;

/// The options that the user can set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) flavor: Flavor,
    /// Whether calls to CUDA's driver API get the names of its runtime API.
    pub(super) runtime_names: bool,
}
