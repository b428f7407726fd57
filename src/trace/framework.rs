//! The framework that a recorded program uses.

use super::{Span, Trace};

/// The framework that a recorded program uses, as far as its trace shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Framework {
    /// PyTorch.
    PyTorch,
    /// Candle.
    Candle,
    /// Burn.
    Burn,
    /// Another one, or none.
    #[default]
    Other,
}

impl Trace {
    /// Returns the framework that the program uses, by the file and by the targets of its spans.
    pub fn framework(&self) -> Framework {
        if self.torch().is_some() {
            return Framework::PyTorch;
        }
        let of_target = |span: Span<'_>| match span.callsite().target().split("::").next().unwrap_or_default() {
            "candle_core" | "candle_nn" | "candle_transformers" | "kernspan_candle" => Some(Framework::Candle),
            "kernspan_burn" => Some(Framework::Burn),
            target if target.starts_with("burn") => Some(Framework::Burn),
            _ => None,
        };
        self.spans().find_map(of_target).unwrap_or_default()
    }
}
