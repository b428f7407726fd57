//! burn-train's loop as spans. Burn's own strategies run it: they see a model and data loaders that are spans when they work.

mod loader;
mod model;

pub use self::loader::{training, validation};
