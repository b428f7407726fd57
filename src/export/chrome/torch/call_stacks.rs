//! Call stacks made of the spans that a span lies in.

use crate::{export::chrome::json::Quoted, trace::Span};
use rustc_hash::FxHashMap;

/// The call stack of each span, innermost first: `src/model.rs(7): forward;src/main.rs(4): train`. From this form the
/// plugin reads file and line.
#[derive(Debug, Default)]
pub(super) struct CallStacks {
    /// The stack of each span so far.
    of_spans: Vec<usize>,
    /// Stacks by their innermost callsite and the stack around it.
    known: FxHashMap<(usize, Option<usize>), usize>,
    texts: Vec<Text>,
}

#[derive(Debug)]
struct Text {
    plain: String,
    quoted: Quoted,
}

impl CallStacks {
    /// The longest stack, in bytes.
    const LONGEST: usize = 4096;

    /// The stack of the next span.
    pub(super) fn of(&mut self, span: Span<'_>) -> &Quoted {
        // A parent is before its children.
        let around = span.parent().and_then(|parent| self.of_spans.get(parent.id().index()).copied());
        let stack = *self.known.entry((span.callsite_id().index(), around)).or_insert_with(|| {
            let mut plain = frame(span);
            if let Some(around) = around {
                plain = plain + ";" + &self.texts[around].plain;
            }
            // A recursion keeps its innermost frames: with all of them, the text would grow by the square of its depth.
            if plain.len() > Self::LONGEST {
                let frames = (0..=Self::LONGEST).rev().find(|&end| plain.is_char_boundary(end)).unwrap_or(0);
                let frames = plain[..frames].rfind(';').unwrap_or(frames);
                plain.truncate(frames);
            }
            let quoted = Quoted::new(&plain);
            self.texts.push(Text { plain, quoted });
            self.texts.len() - 1
        });
        self.of_spans.push(stack);
        &self.texts[stack].quoted
    }
}

/// A span as one frame of a call stack, without the `;` that separates frames.
fn frame(span: Span<'_>) -> String {
    let callsite = span.callsite();
    let frame = match (callsite.file(), callsite.line()) {
        (Some(file), Some(line)) => format!("{file}({line}): {}", callsite.name()),
        _ => callsite.name().to_owned(),
    };
    frame.replace(';', ",")
}
