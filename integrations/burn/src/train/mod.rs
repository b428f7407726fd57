//! Wrappers that turn burn-train's loop into spans. Burn's own strategies run the loop, with a wrapped model and data
//! loaders.

mod loader;
mod model;

pub use self::loader::{training, validation};
