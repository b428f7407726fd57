//! The choices that a document leaves to the user.

use super::flavor::Flavor;

/// The user's choices about a document.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Style {
    pub(super) flavor: Flavor,
    /// Whether calls of CUDA's driver API have the names of its runtime API.
    pub(super) runtime_names: bool,
}
