//! Call stacks of spans, made from the spans around them.

use crate::{export::json::Quoted, trace::Span};
use rustc_hash::FxHashMap;

/// The call stack of each span, innermost first: `src/model.rs(7): forward;src/main.rs(4): train`. The plugin parses
/// file and line from this form.
#[derive(Debug, Default)]
pub(super) struct CallStacks {
    /// The index of the stack of each span so far.
    stack_of: Vec<usize>,
    /// The index of each stack, by its innermost callsite and the stack around it.
    known: FxHashMap<(usize, Option<usize>), usize>,
    stacks: Vec<CallStack>,
}

/// A call stack as text.
#[derive(Debug)]
struct CallStack {
    plain: String,
    quoted: Quoted,
}

impl CallStacks {
    /// The maximum length of a stack in bytes.
    const MAX_LEN: usize = 4096;

    /// Returns the stack of the next span.
    pub(super) fn of(&mut self, span: Span<'_>) -> &Quoted {
        // A parent is before its children.
        let outer = span.parent().and_then(|parent| self.stack_of.get(parent.id().index()).copied());
        let stack = *self.known.entry((span.callsite_id().index(), outer)).or_insert_with(|| {
            let mut plain = frame(span);
            if let Some(outer) = outer {
                plain = plain + ";" + &self.stacks[outer].plain;
            }
            // A recursion keeps its innermost frames: with all of them, the text would grow quadratically with its
            // depth.
            if plain.len() > Self::MAX_LEN {
                let frames = (0..=Self::MAX_LEN).rev().find(|&end| plain.is_char_boundary(end)).unwrap_or(0);
                let frames = plain[..frames].rfind(';').unwrap_or(frames);
                plain.truncate(frames);
            }
            let quoted = Quoted::new(&plain);
            self.stacks.push(CallStack { plain, quoted });
            self.stacks.len() - 1
        });
        self.stack_of.push(stack);
        &self.stacks[stack].quoted
    }
}

/// Returns a span as one frame of a call stack, without the `;` that separates frames.
fn frame(span: Span<'_>) -> String {
    let callsite = span.callsite();
    let frame = match (callsite.file(), callsite.line()) {
        (Some(file), Some(line)) => format!("{file}({line}): {}", callsite.name()),
        _ => callsite.name().to_owned(),
    };
    frame.replace(';', ",")
}
