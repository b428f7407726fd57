//! Names of functions, shortened by their meaning: the type and its method stay, modules and generics go first.

use super::short_names::{KeptEnd, short_names};
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use unicode_width::UnicodeWidthStr;

/// Returns a short form of each name, such as `<BarrierGuard as Drop>::drop` for
/// `<candle_core::utils::BarrierGuard as core::ops::drop::Drop>::drop`. Names that would be alike keep more, until they
/// differ.
pub(crate) fn short_functions<S: AsRef<str>>(names: &[S]) -> Vec<String> {
    let forms: Vec<Forms<'_>> = names.iter().map(|name| Forms::of(name.as_ref())).collect();
    distinct(&forms, |forms| forms.compact)
}

/// Returns each of the names in at most `width` columns of text, with as much of its path as fits.
pub(super) fn fit_functions(names: &[String], width: usize) -> Vec<String> {
    let forms: Vec<Forms<'_>> = names.iter().map(|name| Forms::of(name)).collect();
    let widest = |forms: &Forms<'_>| {
        let last = forms.texts.len() - 1;
        forms.texts.iter().position(|text| text.width() <= width).unwrap_or(last)
    };
    short_names(&distinct(&forms, widest), width, KeptEnd::End)
}

/// Returns the form of each name that `preferred` selects, or the shortest one above it by which all names differ.
fn distinct(forms: &[Forms<'_>], preferred: impl Fn(&Forms<'_>) -> usize) -> Vec<String> {
    let mut shown: Vec<usize> = forms.iter().map(&preferred).collect();
    loop {
        let mut alike: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
        for (index, (forms, &form)) in forms.iter().zip(&shown).enumerate() {
            alike.entry(&forms.texts[form]).or_default().push(index);
        }
        let is_ambiguous =
            |group: &[usize]| group.iter().map(|&at| forms[at].full()).collect::<FxHashSet<_>>().len() > 1;
        let longer: Vec<usize> = alike.into_values().filter(|group| is_ambiguous(group)).flatten().collect();
        // The full names differ, so this ends.
        let longer: Vec<usize> = longer.into_iter().filter(|&at| shown[at] > 0).collect();
        if longer.is_empty() {
            return forms.iter().zip(shown).map(|(forms, form)| forms.texts[form].to_string()).collect();
        }
        longer.into_iter().for_each(|at| shown[at] -= 1);
    }
}

/// The forms of a name, from all of it to the shortest.
struct Forms<'a> {
    texts: Vec<Cow<'a, str>>,
    /// The index of the form to use where nothing else decides.
    compact: usize,
}

impl<'a> Forms<'a> {
    /// The most parts of a type's path that a form between the longest and the shortest one has.
    const MOST_PARTS: usize = 6;

    fn of(name: &'a str) -> Self {
        let mut texts = vec![Cow::Borrowed(name)];
        let Some(function) = Function::parse(name) else { return Self { texts, compact: 0 } };
        let mut push = |text: String| {
            if texts.last().is_none_or(|last| text.len() < last.len()) {
                texts.push(text.into());
            }
            texts.len() - 1
        };
        push(function.text(usize::MAX, usize::MAX));
        let mut compact = 0;
        for parts in (1..=Self::MOST_PARTS).rev() {
            compact = push(function.text(parts, 1));
        }
        push(Function { of_trait: None, ..function }.text(1, 1));
        Self { texts, compact }
    }

    fn full(&self) -> &str {
        &self.texts[0]
    }
}

/// A function of Rust, as its demangled name describes it.
#[derive(Clone, Default)]
struct Function<'a> {
    /// The type whose method it is, if the name has it in angle brackets.
    of_type: Option<&'a str>,
    of_trait: Option<&'a str>,
    /// The parts of its path, without generics. If a type is known, only those after it.
    path: Vec<&'a str>,
    /// What `drop_in_place` drops, the one argument that says more than the path.
    dropped: Option<&'a str>,
    inner: Option<&'static str>,
}

impl<'a> Function<'a> {
    /// Parses the name of a function; `None` if it is not one of Rust, as those of C++ with parameters.
    fn parse(name: &'a str) -> Option<Self> {
        let mut function = Self::default();
        for (index, part) in parts(name)?.into_iter().enumerate() {
            if let Some(inside) = part.strip_prefix('<').and_then(|part| part.strip_suffix('>')) {
                let of_impl = inside.strip_prefix("impl ");
                match (of_impl, index) {
                    // `alloc::vec::<impl Trait for Type>::method`, as in legacy names.
                    (Some(of_impl), _) => {
                        let (of_trait, of_type) = split_outside(of_impl, " for ").unzip();
                        (function.of_type, function.of_trait) = (of_type.or(Some(of_impl)), of_trait);
                        function.path.clear();
                    }
                    (None, 0) => {
                        let (of_type, of_trait) = split_outside(inside, " as ").unzip();
                        (function.of_type, function.of_trait) = (of_type.or(Some(inside)), of_trait);
                    }
                    // `from_elem::<f32>`
                    (None, _) => {}
                }
                continue;
            }
            if part.starts_with('{') {
                function.inner = inner_name(part).or(function.inner);
                continue;
            }
            // Without a shim such as `call_once{{vtable.shim}}`.
            let end = part.find(['<', '{']).unwrap_or(part.len());
            let (word, arguments) = part.split_at(end);
            if word.is_empty() || !word.chars().all(|c| c.is_alphanumeric() || c == '_') {
                return None;
            }
            if word == "drop_in_place" {
                function.dropped = arguments.strip_prefix('<').and_then(|inside| inside.strip_suffix('>'));
            }
            function.path.push(word);
        }
        (!function.path.is_empty()).then_some(function)
    }

    /// Returns the name with at most this many parts of the paths of its type and its trait.
    fn text(&self, type_parts: usize, trait_parts: usize) -> String {
        let mut text = match (self.of_type, self.of_trait) {
            (Some(of_type), Some(of_trait)) => {
                format!("<{} as {}>::", short_type(of_type, type_parts), short_type(of_trait, trait_parts))
            }
            (Some(of_type), None) => match short_type(of_type, type_parts) {
                path if path.starts_with(|c: char| c.is_alphanumeric() || c == '_') && !path.contains(' ') => {
                    path + "::"
                }
                other => format!("<{other}>::"),
            },
            (None, _) => String::new(),
        };
        let shown = if self.of_type.is_some() { usize::MAX } else { type_parts.saturating_add(1) };
        text += &self.path[self.path.len().saturating_sub(shown)..].join("::");
        if let Some(dropped) = self.dropped {
            text += &format!("<{}>", short_type(dropped, type_parts));
        }
        self.inner.iter().for_each(|inner| text += &format!("::{inner}"));
        text
    }
}

/// Returns what a part in braces stands for: a closure or a future. `None`: an `impl` without a name, or glue.
fn inner_name(part: &str) -> Option<&'static str> {
    let name = part.trim_start_matches('{');
    [("closure", "{closure}"), ("async", "{async}"), ("coroutine", "{async}")]
        .into_iter()
        .find_map(|(start, inner)| name.starts_with(start).then_some(inner))
}

/// Returns a type with at most this many parts of each path in it, and without their generics.
fn short_type(text: &str, most: usize) -> String {
    let mut short = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_path = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '{' | '}' | '#');
        if !is_path(first) {
            short.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (mut names, mut inner) = (Vec::new(), None);
        loop {
            let end = rest.find(|c| !is_path(c)).unwrap_or(rest.len());
            for part in rest[..end].split("::").filter(|part| !part.is_empty()) {
                match part.starts_with('{') {
                    true => inner = inner_name(part).or(inner),
                    false => names.push(part),
                }
            }
            rest = &rest[end..];
            match closing(rest) {
                Some(end) => rest = &rest[end..],
                None => break,
            }
        }
        let most = most.saturating_add(usize::from(inner.is_some()));
        short += &names[names.len().saturating_sub(most)..].join("::");
        inner.iter().for_each(|inner| short += &format!("::{inner}"));
    }
    short
}

/// Returns where the generics end that a text begins with, if it does.
fn closing(text: &str) -> Option<usize> {
    text.starts_with('<').then(|| outside(text).find(|&at| at > 0)).flatten()
}

/// Returns the places in a text that are outside all brackets.
fn outside(text: &str) -> impl Iterator<Item = usize> {
    let mut depth = 0_usize;
    let mut before = ' ';
    let places = text.char_indices().filter_map(move |(at, c)| {
        let is_outside = depth == 0;
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            // The arrow of a function's type is no bracket.
            '>' if before == '-' => {}
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = c;
        is_outside.then_some(at)
    });
    places.chain([text.len()])
}

/// Splits a text at the first separator outside all brackets.
fn split_outside<'a>(text: &'a str, separator: &str) -> Option<(&'a str, &'a str)> {
    let at = outside(text).find(|&at| text[at..].starts_with(separator))?;
    Some((&text[..at], &text[at + separator.len()..]))
}

/// Returns the parts of a path. `None` if its brackets do not match.
fn parts(name: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let mut rest = name;
    while let Some((part, more)) = split_outside(rest, "::") {
        parts.push(part);
        rest = more;
    }
    let count = |brackets: [char; 2]| brackets.map(|bracket| name.matches(bracket).count());
    let arrows = name.matches("->").count();
    let ([open, close], [begin, end]) = (count(['<', '>']), count(['{', '}']));
    parts.push(rest);
    (open + arrows == close && begin == end).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::{fit_functions, short_functions};
    use unicode_width::UnicodeWidthStr;

    const GUARD: &str = "<candle_core::utils::BarrierGuard as core::ops::drop::Drop>::drop";

    #[test]
    fn a_function_is_its_type_and_its_method() {
        for (name, expected) in [
            (GUARD, "<BarrierGuard as Drop>::drop"),
            ("candle_core::tensor::Tensor::matmul", "Tensor::matmul"),
            ("<candle_core::tensor::Tensor>::matmul", "Tensor::matmul"),
            ("<alloc::vec::Vec<f32>>::push", "Vec::push"),
            ("alloc::vec::from_elem::<f32>", "vec::from_elem"),
            ("train::main", "train::main"),
            ("train::model::attention", "model::attention"),
            ("train::Model::forward::{{closure}}", "Model::forward::{closure}"),
            ("train::Model::forward::{closure#0}::{closure#1}", "Model::forward::{closure}"),
            ("train::fetch::{async_fn#0}", "train::fetch::{async}"),
            ("train::tensor::{impl#3}::matmul", "tensor::matmul"),
            ("in_scope<train::main::{closure_env#0}>", "in_scope"),
            ("{closure#0}<Conv2d>", "{closure#0}<Conv2d>"),
            ("core::ptr::drop_in_place<alloc::vec::Vec<train::Batch>>", "ptr::drop_in_place<Vec>"),
            ("core::slice::<impl [T]>::sort", "<[T]>::sort"),
            (
                "alloc::boxed::<impl core::ops::FnOnce<A> for alloc::boxed::Box<F>>::call_once",
                "<Box as FnOnce>::call_once",
            ),
            ("<&mut dyn core::fmt::Write as core::fmt::Write>::write_str", "<&mut dyn Write as Write>::write_str"),
            (
                "<train::main::{closure#0} as core::ops::FnOnce<()>>::call_once",
                "<train::main::{closure} as FnOnce>::call_once",
            ),
            ("<fn(&train::A) -> train::B as core::ops::FnOnce<()>>::call_once", "<fn(&A) -> B as FnOnce>::call_once"),
            ("<rayon_core::job::StackJob<L,F,R> as rayon_core::job::Job>::execute", "<StackJob as Job>::execute"),
            ("<T as train::Layer<<U as train::Kind>::Out>>::forward", "<T as Layer>::forward"),
            ("train::größe::messen", "größe::messen"),
            // Not Rust: as they are.
            ("at::native::add(at::Tensor const&)", "at::native::add(at::Tensor const&)"),
            ("operator new", "operator new"),
            ("[libm.so.6]", "[libm.so.6]"),
            ("0x1f2c4", "0x1f2c4"),
            ("a::<b", "a::<b"),
            ("", ""),
        ] {
            assert_eq!(short_functions(&[name]), [expected], "{name}");
        }
    }

    #[test]
    fn functions_that_would_be_alike_keep_more() {
        let short = short_functions(&["a::conv::Layer::run", "a::linear::Layer::run", "a::Loss::run"]);
        assert_eq!(short, ["conv::Layer::run", "linear::Layer::run", "Loss::run"]);
        let generics = ["a::B<f32>::run", "a::B<f64>::run", "a::B<f32>::run"];
        assert_eq!(short_functions(&generics), generics);
        let closures = ["a::B::run::{closure#0}", "a::B::run::{closure#1}"];
        assert_eq!(short_functions(&closures), closures);
    }

    #[test]
    fn a_narrow_column_has_what_fits_of_a_function() {
        let names = [GUARD, "candle_core::tensor::Tensor::matmul", "main"].map(str::to_owned);
        for (width, expected) in [
            (80, [GUARD, "candle_core::tensor::Tensor::matmul", "main"]),
            (40, ["<utils::BarrierGuard as Drop>::drop", "candle_core::tensor::Tensor::matmul", "main"]),
            (30, ["<BarrierGuard as Drop>::drop", "tensor::Tensor::matmul", "main"]),
            (22, ["BarrierGuard::drop", "tensor::Tensor::matmul", "main"]),
            (16, ["Barrier…er::drop", "Tensor::matmul", "main"]),
        ] {
            let short = fit_functions(&names, width);
            assert!(short.iter().all(|name| name.width() <= width), "{short:?}");
            if width > 16 {
                assert_eq!(short, expected, "{width}");
            }
        }
        let alike = ["a::conv::Layer::run", "a::linear::Layer::run"].map(str::to_owned);
        let short = fit_functions(&alike, 16);
        assert!(short[0] != short[1] && short.iter().all(|name| name.width() <= 16), "{short:?}");
    }
}
