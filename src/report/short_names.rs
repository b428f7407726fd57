//! Names that are shortened to fit a column, and stay different.

use crate::kernel_names::{numbered, tight_kernels};
use rustc_hash::{FxHashMap, FxHashSet};
use unicode_width::UnicodeWidthStr;

/// The end of a name that says most, and is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KeptEnd {
    /// The first part, as of a stack that is written from the inside out.
    Start,
    /// The last part, as of a path.
    #[default]
    End,
    /// Both, after the indentation, as of a name in a tree.
    Both,
}

/// Returns each of the names in at most `width` columns of text.
///
/// Of a name that is too wide, the parts that tell it from the other names are kept, then numbers, such as the index of
/// a layer, then the parts next to the kept end. `…` stands for the others, such as the start that most names have. A
/// name that starts like no other is cut in the middle.
pub(super) fn short_names(names: &[String], width: usize, kept_end: KeptEnd) -> Vec<String> {
    if names.iter().all(|name| name.width() <= width) {
        return names.to_vec();
    }
    if kept_end == KeptEnd::Both {
        return names.iter().map(|name| cut_indented(name, width)).collect();
    }
    let parts: Vec<Parts<'_>> = names.iter().map(|name| Parts::of(name, kept_end)).collect();
    let mut by_end: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
    let mut starts: FxHashMap<&str, usize> = FxHashMap::default();
    for (index, parts) in parts.iter().enumerate() {
        by_end.entry(parts.end()).or_default().push(index);
        *starts.entry(parts.start()).or_default() += 1;
    }
    let mut short: Vec<_> = (0..names.len())
        .map(|index| {
            let (name, own) = (&names[index], &parts[index]);
            let same_end = &by_end[own.end()];
            let others = same_end.iter().copied().chain((0..names.len()).filter(|other| !same_end.contains(other)));
            let others = others.filter(|&other| names[other] != *name).take(own.compared());
            let others: Vec<_> = others.map(|other| &parts[other]).collect();
            match (name.width() <= width, starts[own.start()]) {
                (true, _) => name.clone(),
                (false, 1) => cut_middle(name, width),
                (false, same) => {
                    let is_common = 2 * same > names.len();
                    own.shorten(&others, width, is_common).unwrap_or_else(|| cut_middle(name, width))
                }
            }
        })
        .collect();
    tell_apart(names, &mut short, width);
    short
}

/// Returns each of the names of kernels in at most `width` columns of text.
pub(super) fn fit_kernels(names: &[String], width: usize) -> Vec<String> {
    let short = short_names(&tight_kernels(names, width), width, KeptEnd::Start);
    numbered(names, short, width)
}

/// Returns a name in at most `width` columns, of which its indentation takes half at the most.
fn cut_indented(name: &str, width: usize) -> String {
    let text = name.trim_start_matches(' ');
    let indent = (name.len() - text.len()).min(width / 2);
    " ".repeat(indent) + &cut_middle(text, width - indent)
}

/// Returns whether different names are the same in their short form.
pub(super) fn are_ambiguous(names: &[String], short: &[String]) -> bool {
    names.iter().collect::<FxHashSet<_>>().len() > short.iter().collect::<FxHashSet<_>>().len()
}

/// Returns the text in at most `width` columns. The middle is cut out, since the ends of a path matter more.
pub(super) fn cut_middle(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    // A text can be wider than the sum of its characters, so the whole text is measured.
    let characters: Vec<_> = text.chars().collect();
    let middle = |cut: usize| {
        let kept = characters.len() - cut;
        let (head, tail) = (&characters[..kept / 2], &characters[characters.len() - (kept - kept / 2)..]);
        head.iter().chain(&['…']).chain(tail).collect::<String>()
    };
    let least = characters.len().saturating_sub(width);
    (least..=characters.len()).map(middle).find(|text| text.width() <= width).unwrap_or_default()
}

/// Shortens names that are still alike again: to their start, and the text from where they differ.
fn tell_apart(names: &[String], short: &mut [String], width: usize) {
    let mut alike: FxHashMap<String, Vec<usize>> = FxHashMap::default();
    for (index, short) in short.iter().enumerate() {
        alike.entry(short.clone()).or_default().push(index);
    }
    for group in alike.into_values() {
        let first = &names[group[0]];
        let common = |other: &String| first.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
        let different = group.iter().map(|&index| &names[index]).filter(|name| *name != first);
        let Some(prefix) = different.map(common).min() else { continue };
        for index in group {
            let name: Vec<char> = names[index].chars().collect();
            let (head, rest) = (&name[..prefix.min(width / 4)], &name[prefix.min(name.len())..]);
            let text = |kept: usize| {
                let cut = if kept < rest.len() { "…" } else { "" };
                head.iter().chain(&['…']).chain(&rest[..kept]).collect::<String>() + cut
            };
            let widest = (0..=rest.len().min(width)).rev().map(text).find(|text| text.width() <= width);
            short[index] = widest.unwrap_or_else(|| cut_middle(&names[index], width));
        }
    }
}

/// The parts of a name: words, each with the punctuation after it.
struct Parts<'a> {
    parts: Vec<&'a str>,
    kept_end: KeptEnd,
}

impl<'a> Parts<'a> {
    /// Returns the number of names that the name is compared with. It bounds the time that large tables take, and those
    /// of names with hundreds of parts, as kernels have.
    fn compared(&self) -> usize {
        (20_000 / self.parts.len().pow(2)).clamp(8, 200)
    }

    fn of(name: &'a str, kept_end: KeptEnd) -> Self {
        let mut parts = Vec::new();
        let (mut start, mut in_word) = (0, true);
        for (at, character) in name.char_indices() {
            let is_word = character.is_alphanumeric();
            if is_word && !in_word {
                parts.push(&name[start..at]);
                start = at;
            }
            in_word = is_word;
        }
        parts.push(&name[start..]);
        Self { parts, kept_end }
    }

    /// Returns the word at the kept end.
    fn end(&self) -> &'a str {
        self.word(self.kept())
    }

    /// Returns the word at the other end.
    fn start(&self) -> &'a str {
        self.word(self.parts.len() - 1 - self.kept())
    }

    /// Returns the index of the part that is always kept.
    fn kept(&self) -> usize {
        if self.kept_end == KeptEnd::Start { 0 } else { self.parts.len() - 1 }
    }

    /// Returns a part without the punctuation after it.
    fn word(&self, index: usize) -> &'a str {
        self.parts[index].trim_end_matches(|c: char| !c.is_alphanumeric())
    }

    fn is_number(&self, index: usize) -> bool {
        let word = self.word(index);
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// Returns the name in at most `width` columns, if possible told from the `others`: with both ends, or with one, or
    /// with neither. If most names have the same start, it is not kept. Returns `None` if nothing fits.
    fn shorten(&self, others: &[&Self], width: usize, is_start_common: bool) -> Option<String> {
        let nothing = vec![false; self.parts.len()];
        let mut end = nothing.clone();
        end[self.kept()] = true;
        let mut both = end.clone();
        both[self.parts.len() - 1 - self.kept()] |= !is_start_common;
        let mut texts = [both, end, nothing].into_iter().filter_map(|kept| self.extend(kept, others, width));
        let (text, is_clear) = texts.next()?;
        if is_clear {
            return Some(text);
        }
        texts.find(|(_, is_clear)| *is_clear).map(|(text, _)| text).or(Some(text))
    }

    /// Keeps more of the parts, as many as fit. Returns the text, and whether it is told from the `others`.
    fn extend(&self, mut kept: Vec<bool>, others: &[&Self], width: usize) -> Option<(String, bool)> {
        let mut text = Some(self.text(&kept)).filter(|text| text.width() <= width)?;
        let distance = |index: usize| index.abs_diff(self.kept());
        let with = |kept: &[bool], index: usize| {
            let mut more = kept.to_vec();
            more[index] = true;
            let text = self.text(&more);
            (text.width() <= width).then_some((more, text))
        };
        // First the parts that tell the name from the most others.
        let mut alike: Vec<&Self> = others.iter().copied().filter(|other| other.matches(self, &kept)).collect();
        while !alike.is_empty() {
            let next =
                (0..kept.len()).filter(|&index| !kept[index]).filter_map(|index| with(&kept, index).zip(Some(index)));
            let rated = next.map(|((more, text), index)| {
                let left = alike.iter().filter(|other| other.matches(self, &more)).count();
                ((left, !self.is_number(index), distance(index)), more, text)
            });
            let Some((_, more, longer)) = rated.min_by_key(|(rating, ..)| *rating) else { break };
            (kept, text) = (more, longer);
            alike.retain(|other| other.matches(self, &kept));
        }
        // Then what there is room for: numbers, and parts beside those that are kept.
        let mut rest: Vec<_> = (0..kept.len()).filter(|&index| !kept[index]).collect();
        rest.sort_by_key(|&index| (!self.is_number(index), distance(index)));
        for index in rest {
            let is_beside = |kept: &[bool]| (index > 0 && kept[index - 1]) || kept.get(index + 1) == Some(&true);
            let is_wanted = self.is_number(index) || is_beside(&kept);
            if let Some(longer) = with(&kept, index).filter(|_| is_wanted) {
                (kept, text) = longer;
            }
        }
        Some((text, alike.is_empty()))
    }

    /// Returns the parts that are kept, with `…` for each run of others.
    fn text(&self, kept: &[bool]) -> String {
        let mut text = String::new();
        for (index, part) in self.parts.iter().enumerate() {
            let is_cut = kept.get(index + 1) == Some(&false);
            match (kept[index], is_cut) {
                (true, false) => text.push_str(part),
                (true, true) => text.push_str(part.trim_end_matches(['.', ':', '/', '_', '-', ',', '<', '(', ' '])),
                (false, _) if text.ends_with('…') => {}
                (false, _) => text.push('…'),
            }
        }
        text
    }

    /// Returns whether this name could be the one that is shown as the `kept` parts of `other`.
    fn matches(&self, other: &Self, kept: &[bool]) -> bool {
        let runs: Vec<(usize, usize)> = runs(kept);
        let (length, parts) = (self.parts.len(), other.parts.len());
        let same = |at: usize, (start, end): (usize, usize)| {
            at + (end - start) <= length && (start..end).zip(at..).all(|(from, to)| other.word(from) == self.word(to))
        };
        let mut from = 0;
        for run @ (start, end) in runs {
            let last = length.checked_sub(end - start);
            let found = match (start == 0, end == parts) {
                (true, true) => (length == parts && same(0, run)).then_some(0),
                (true, false) => same(0, run).then_some(0),
                (false, true) => last.filter(|&at| at >= from && same(at, run)),
                (false, false) => (from..length).find(|&at| same(at, run)),
            };
            let Some(at) = found else { return false };
            from = at + (end - start);
        }
        true
    }
}

/// Returns the start and end of each run of parts that are kept.
fn runs(kept: &[bool]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for index in (0..kept.len()).filter(|&index| kept[index]) {
        match runs.last_mut() {
            Some((_, end)) if *end == index => *end += 1,
            _ => runs.push((index, index + 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::{KeptEnd, are_ambiguous, cut_middle, short_names};
    use unicode_width::UnicodeWidthStr;

    fn shorten(names: &[&str], width: usize) -> Vec<String> {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let short = short_names(&names, width, KeptEnd::End);
        assert!(short.iter().all(|name| name.width() <= width), "{short:?}");
        assert!(!are_ambiguous(&names, &short), "{short:?}");
        short
    }

    fn modules() -> Vec<String> {
        let layers = (0..12).flat_map(|layer| {
            ["attn.query_projection", "attn.key_projection", "attn.value_projection", "mlp.up_projection"]
                .map(|module| format!("model.transformer.h.{layer}.{module}"))
        });
        layers.collect()
    }

    #[test]
    fn paths_keep_their_indices_and_last_parts() {
        let modules = modules();
        let short = short_names(&modules, 22, KeptEnd::End);
        assert!(!are_ambiguous(&modules, &short), "{short:?}");
        assert_eq!(short[0], "…h.0…query_projection");
        assert_eq!(short[45], "…h.11…key_projection");
        assert_eq!(short_names(&modules, 26, KeptEnd::End)[45], "…h.11.attn.key_projection");
        for width in 16..40 {
            let short = short_names(&modules, width, KeptEnd::End);
            assert!(!are_ambiguous(&modules, &short) && short.iter().all(|name| name.width() <= width), "{short:?}");
        }
    }

    #[test]
    fn a_name_that_is_like_no_other_loses_its_middle() {
        assert_eq!(cut_middle("forward", 7), "forward");
        assert_eq!(cut_middle("model::layers::attention", 11), "model…ntion");
        assert_eq!(shorten(&["model::layers::attention", "loss"], 11), ["model…ntion", "loss"]);
        for width in 1..12 {
            assert!(cut_middle("模型::注意力::层", width).width() <= width);
            assert!(cut_middle("gears ⚙️⚙️⚙️ \u{7} and more", width).width() <= width);
        }
    }

    #[test]
    fn names_without_parts_are_told_apart_by_what_differs() {
        let names = ["a", "b"].map(|middle| format!("{}{middle}{}", "x".repeat(30), "y".repeat(30)));
        let short = shorten(&[&names[0], &names[1], "z"], 20);
        assert_eq!(short, ["xxxxx…ayyyyyyyyyyyy…", "xxxxx…byyyyyyyyyyyy…", "z"]);
    }

    #[test]
    fn a_start_is_kept_unless_most_names_have_it() {
        let copies = ["Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pageable)"];
        let short = shorten(&[copies[0], copies[1], "gemm", "add", "affine"], 22);
        assert_eq!(short[..2], ["Memcpy HtoD…Device)", "Memcpy DtoH…Pageable)"]);
    }

    #[test]
    fn stacks_keep_their_start() {
        let stacks = ["query < attention < block < train_step", "value < attention < block < train_step"];
        let short = short_names(&stacks.map(str::to_owned), 20, KeptEnd::Start);
        assert_eq!(short, ["query < attention…", "value < attention…"]);
    }

    #[test]
    fn the_same_name_twice_is_no_ambiguity() {
        let name = "model.transformer.h.0.attn.query_projection";
        let short = "…h.0.attn.query_projection";
        assert_eq!(shorten(&[name, name, "model.loss"], 30), [short, short, "model.loss"]);
    }
}
