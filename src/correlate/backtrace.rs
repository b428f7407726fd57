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

/// Returns the line that allocated memory, such as `src/model.rs:42`: that of the innermost function of the program
/// itself, or else of a library. If the program has no debug information, it is the name of the function.
pub(super) fn allocating_line(backtrace: &Backtrace) -> Option<String> {
    line_of(&backtrace.to_string())
}

fn line_of(backtrace: &str) -> Option<String> {
    let mut lines = backtrace.lines().map(str::trim_start).peekable();
    let (mut in_library, mut without_place) = (None, None);
    while let Some(line) = lines.next() {
        let Some((_, function)) = line.split_once(": ").filter(|(number, _)| number.parse::<u32>().is_ok()) else {
            continue;
        };
        let place = lines.next_if(|next| next.starts_with("at ")).map(|next| &next["at ".len()..]);
        if is_allocating(function, place) {
            continue;
        }
        let Some(place) = place else {
            without_place.get_or_insert(function);
            continue;
        };
        // Without the column.
        let place = place.strip_prefix("./").unwrap_or(place);
        let place = place.rsplit_once(':').map_or(place, |(place, _)| place);
        if !LIBRARIES.iter().any(|path| place.contains(path)) {
            return Some(place.to_owned());
        }
        in_library.get_or_insert(place);
    }
    in_library.or(without_place).map(str::to_owned)
}

/// Where Cargo has the sources of libraries.
const LIBRARIES: [&str; 2] = [".cargo/registry/src/", ".cargo/git/checkouts/"];

/// Whether a function is part of allocating memory, or of taking the backtrace.
fn is_allocating(function: &str, place: Option<&str>) -> bool {
    const CRATES: [&str; 7] = ["std::", "core::", "alloc::", "kernspan::", "hashbrown::", "__rust", "__rg_"];
    const OURS: [&str; 3] = ["src/heap/mod.rs:", "src/heap/samples.rs:", "src/heap/stacks.rs:"];
    let name = function.trim_start_matches(['<', '&']);
    let is_in = |paths: &[&str]| place.is_some_and(|place| paths.iter().any(|path| place.contains(path)));
    // If there are line tables only, functions that are inlined lack their paths.
    let is_ours = !name.contains("::") && is_in(&OURS);
    // The standard library was built in the first folder; the second one has its sources.
    let is_std = is_in(&["/rustc/", "/rustlib/src/rust/library/"]);
    // A method of a trait is `<type as trait>::name`.
    let of_trait = name.split_once(" as ").map_or("", |(_, of_trait)| of_trait);
    is_std || is_ours || CRATES.iter().any(|path| name.starts_with(path) || of_trait.starts_with(path))
}

/// Whether a function is part of taking the backtrace.
fn is_capturing(frame: &str) -> bool {
    let function = frame.trim_start_matches('<');
    let name = function.split_once('<').map_or(function, |(name, _)| name);
    CAPTURING_CRATES.iter().any(|path| function.starts_with(path)) || INLINED_FUNCTIONS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::line_of;

    const ALLOCATING: &str = "   0: std::backtrace_rs::backtrace::trace
             at /rustc/5980/library/std/src/backtrace.rs:1:2
   1: kernspan::heap::samples::sample
   2: note_allocated
             at ./src/heap/mod.rs:186:17
   3: __rustc::__rust_alloc
   4: <u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem
";

    #[test]
    fn the_line_is_that_of_the_program_or_else_of_a_library_or_a_function() {
        let line = |frames: &str| line_of(&format!("{ALLOCATING}{frames}"));
        let library = "   5: candle_core::storage::zeros
             at /home/me/.cargo/registry/src/index-1949/candle-core-0.9.1/src/storage.rs:12:5
";
        let program = "   6: train::model::forward
             at ./src/model.rs:42:9
   7: train::main
             at ./src/main.rs:7:1
";
        assert_eq!(line(&format!("{library}{program}")).as_deref(), Some("src/model.rs:42"));
        let storage = "/home/me/.cargo/registry/src/index-1949/candle-core-0.9.1/src/storage.rs:12";
        assert_eq!(line(&format!("{library}   6: train::main\n")).as_deref(), Some(storage));
        let unnamed = "   5: train::cache\n   6: train::main\n";
        assert_eq!(line(unnamed).as_deref(), Some("train::cache"));
        assert_eq!(line(&format!("{unnamed}{program}")).as_deref(), Some("src/model.rs:42"));
        assert_eq!(line(""), None);
        assert_eq!(line_of("disabled backtrace"), None);
    }
}
