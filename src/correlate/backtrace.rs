//! The functions on a captured call stack.

use std::backtrace::Backtrace;

/// The crates that are involved in taking a backtrace. Their functions come first in it.
const CAPTURING_CRATES: [&str; 6] =
    ["std::", "core::", "tracing::", "tracing_core::", "tracing_subscriber::", "kernspan::"];

/// Functions of `tracing` that are inlined. A program that has line tables only does not know their paths.
const INLINED_FUNCTIONS: [&str; 5] = ["{closure#0}", "do_enter", "enter", "entered", "in_scope"];

/// Returns the functions on a call stack, innermost first, from the one that entered the span out to `main`.
pub(super) fn frames(backtrace: &Backtrace) -> Vec<String> {
    // The standard library gives no access to the frames other than their text.
    let text = backtrace.to_string();
    let frames = text.lines().filter_map(|line| {
        let (number, function) = line.trim_start().split_once(": ")?;
        number.parse::<u32>().ok().map(|_| function.to_owned())
    });
    let mut frames: Vec<_> = frames.skip_while(|frame| is_capturing(frame)).collect();
    // This function of the standard library calls `main`.
    if let Some(main) = frames.iter().position(|frame| frame.starts_with("std::sys::backtrace::__rust_begin_short")) {
        frames.truncate(main);
    }
    frames
}

/// Whether a function is part of taking the backtrace.
fn is_capturing(frame: &str) -> bool {
    let function = frame.trim_start_matches('<');
    let name = function.split_once('<').map_or(function, |(name, _)| name);
    CAPTURING_CRATES.iter().any(|path| function.starts_with(path)) || INLINED_FUNCTIONS.contains(&name)
}
