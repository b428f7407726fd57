//! A name of a kernel in parts: those that it is known by, and those that tell it from its siblings.

use super::{
    demangled::{Argument, Lambda, Path, SCALARS, function, split},
    words::Words,
};
use rustc_hash::FxHashSet;

/// What a part of a name is: those that say most come first. The number counts parts of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Type,
    Adjective,
    Wrapper,
    Word(usize),
    Parameters,
    Arguments,
    Value(usize),
    Class(usize),
    Lambda,
    Scope,
}

/// A name in parts.
#[derive(Debug, Default)]
pub(super) struct KernelName {
    base: String,
    /// The base without words that say little, for narrow columns.
    tight_base: String,
    pub(super) is_tight: bool,
    /// The arguments that are always shown.
    arguments: Vec<String>,
    tile: Option<String>,
    /// The parts that tell it from others, and whether each is shown.
    others: Vec<(Rank, String, bool)>,
}

impl KernelName {
    /// The maximum number of types that are shown where there is no operation.
    const MOST_TYPES: usize = 2;
    /// The maximum number of parts that tell it from others.
    const MOST_OTHERS: usize = 48;

    pub(super) fn of(name: &str) -> Self {
        let is_path = name.contains(['<', '(', ':']);
        let parsed = match function(name).filter(|_| is_path) {
            Some(path) => Self::of_path(&path),
            None => Words::parse(name).map(Self::of_words),
        };
        let plain = || Self { base: name.to_owned(), tight_base: name.to_owned(), ..Self::default() };
        let mut parsed = parsed.filter(|parsed| !parsed.base.is_empty()).unwrap_or_else(plain);
        parsed.others.truncate(Self::MOST_OTHERS);
        if parsed.text().len() > name.len() { plain() } else { parsed }
    }

    fn of_words(words: Words) -> Self {
        let mut name = Self { tight_base: words.base.clone(), base: words.base, tile: words.tile, ..Self::default() };
        words.rest.into_iter().enumerate().for_each(|(index, word)| name.hide(Rank::Word(index), word));
        name
    }

    fn of_path(path: &Path<'_>) -> Option<Self> {
        let is_generic = meaning(path.name, &["device"]).is_empty();
        // `Kernel2<cutlass_…>`: the class is what it does.
        if is_generic && let Some(class) = path.classes().find(|class| !is_settings(class) && class.lambda.is_none()) {
            let mut name = Self::of_path(&class)?;
            name.hide(Rank::Scope, path.name.to_owned());
            return Some(name);
        }
        let mut name = match Words::parse(path.name) {
            Some(words) => Self::of_words(words),
            None => {
                let base = strip_words(path.name, &ADJECTIVES);
                let scope = path.scope.last().filter(|_| is_generic);
                let full = scope.map_or(base.to_owned(), |scope| format!("{scope}::{base}"));
                let mut name = Self { base: full, ..Self::default() };
                name.hide(Rank::Adjective, path.name[..path.name.len() - base.len()].trim_matches('_').to_owned());
                name
            }
        };
        name.tight_base = Some(meaning(&name.base, &TIGHT)).filter(|it| !it.is_empty()).unwrap_or(name.base.clone());
        name.add_arguments(path);
        name.hide(Rank::Scope, path.scope.last().copied().unwrap_or_default().to_owned());
        Some(name)
    }

    /// Adds what the template arguments say.
    fn add_arguments(&mut self, path: &Path<'_>) {
        let operations: Vec<Operation> = path.classes().filter_map(|class| Operation::of(&class)).collect();
        let mut types = Vec::new();
        for (index, argument) in path.arguments().enumerate() {
            match argument {
                Argument::Value(value) => self.hide(Rank::Value(index), value.to_owned()),
                Argument::Scalar(scalar) => types.push(scalar.to_owned()),
                Argument::Class(class) if Operation::of(&class).is_some() => {}
                Argument::Class(class) if is_settings(&class) => {
                    self.hide(Rank::Class(index), format!("{}<{}>", class.name, short_arguments(&class)));
                }
                Argument::Class(class) if operations.is_empty() && !is_shape(&class) => types.push(shown_class(&class)),
                Argument::Class(class) => self.hide(Rank::Class(index), shown_class(&class)),
            }
        }
        for operation in operations {
            self.arguments.push(operation.name);
            self.hide(Rank::Wrapper, operation.wrappers.join(" "));
            self.hide(Rank::Parameters, operation.parameters);
            self.hide(Rank::Arguments, operation.arguments);
            self.hide(Rank::Lambda, operation.numbers);
            types.splice(0..0, operation.types);
        }
        // Those of the settings, where there are no others.
        let settings = path.classes().filter(is_settings);
        if self.arguments.is_empty() && types.is_empty() {
            let settings: Vec<Path<'_>> = settings.collect();
            types = settings.iter().flat_map(Path::scalars).collect();
            self.tile = self.tile.take().or_else(|| settings.iter().find_map(tile_of));
        }
        let mut seen = FxHashSet::default();
        types.retain(|it| seen.insert(it.clone()));
        if self.arguments.is_empty() {
            // Integers are mostly indices, where there are other numbers.
            let has_floats = types.iter().any(|it| is_float(it));
            let is_index = |it: &String| has_floats && is_integer(it);
            types.sort_by_key(is_index);
            let count = types.iter().filter(|it| !is_index(it)).count();
            let more = types.split_off(count.min(Self::MOST_TYPES));
            self.arguments = types;
            types = more;
        }
        self.hide(Rank::Type, types.join(", "));
    }

    /// Adds a part that is shown only if it is needed.
    fn hide(&mut self, rank: Rank, text: String) {
        if !text.is_empty() {
            self.others.push((rank, text, false));
        }
    }

    pub(super) fn hidden_ranks(&self) -> impl Iterator<Item = Rank> {
        self.others.iter().filter(|(.., is_shown)| !is_shown).map(|(rank, ..)| *rank)
    }

    /// Returns the text of a part that is not shown yet.
    pub(super) fn hidden(&self, rank: Rank) -> Option<&str> {
        self.others.iter().find(|part| part.0 == rank && !part.2).map(|(_, text, _)| text.as_str())
    }

    pub(super) fn show(&mut self, rank: Rank) {
        self.others.iter_mut().filter(|part| part.0 == rank).for_each(|part| part.2 = true);
    }

    pub(super) fn text(&self) -> String {
        let shown = self.others.iter().filter(|(.., is_shown)| *is_shown);
        let (types, after): (Vec<_>, Vec<_>) = shown.partition(|(rank, ..)| *rank == Rank::Type);
        let mut text = if self.is_tight { self.tight_base.clone() } else { self.base.clone() };
        let arguments: Vec<&str> =
            self.arguments.iter().chain(types.into_iter().map(|part| &part.1)).map(|it| &**it).collect();
        if !arguments.is_empty() {
            text += &format!("<{}>", arguments.join(", "));
        }
        self.tile.iter().chain(after.into_iter().map(|part| &part.1)).for_each(|part| text += &format!(" {part}"));
        text
    }
}

/// An argument that says what is done with each element: a functor, or a lambda.
struct Operation {
    name: String,
    types: Vec<String>,
    /// The classes around it, the inner ones first.
    wrappers: Vec<String>,
    /// The parameters of a lambda.
    parameters: String,
    /// The arguments of the template that it is made of.
    arguments: String,
    /// The numbers of a lambda in its function.
    numbers: String,
}

impl Operation {
    /// Returns the operation that a class is or has as an argument, the innermost one.
    fn of(class: &Path<'_>) -> Option<Self> {
        if let Some(mut operation) = class.classes().find_map(|inner| Self::of(&inner)) {
            operation.wrappers.extend(Some(meaning(class.name, &FUNCTOR)).filter(|name| !name.is_empty()));
            if operation.types.is_empty() {
                operation.types = class.scalars();
            }
            return Some(operation);
        }
        if class.lambda.is_none() && !is_functor(class) {
            return None;
        }
        let Lambda { parameters, numbers } = class.lambda.clone().unwrap_or_default();
        let types = match class.lambda {
            Some(_) => Path { arguments: split(parameters, ",").map(str::trim).collect(), ..Path::default() }.scalars(),
            None => class.scalars(),
        };
        let mut each = split(parameters, ",").map(str::trim);
        let parameters = match each.next() {
            Some(first) if each.all(|other| other == first) => format!("({}×{first})", split(parameters, ",").count()),
            Some(_) => format!("({parameters})"),
            None => String::new(),
        };
        let arguments = match class.arguments.is_empty() {
            true => String::new(),
            false => format!("<{}>", short_arguments(class)),
        };
        Some(Self { name: functor_name(class), types, wrappers: Vec::new(), parameters, arguments, numbers })
    }
}

impl<'a> Path<'a> {
    fn classes(&self) -> impl Iterator<Item = Path<'a>> + use<'a, '_> {
        self.arguments().filter_map(|argument| match argument {
            Argument::Class(class) => Some(class),
            _ => None,
        })
    }

    fn scalars(&self) -> Vec<String> {
        let scalar = |argument| match argument {
            Argument::Scalar(scalar) => Some(scalar.to_owned()),
            _ => None,
        };
        self.arguments().filter_map(scalar).collect()
    }
}

/// Returns a functor's name without the words that all of them have; with what it is in, if nothing else is left.
fn functor_name(class: &Path<'_>) -> String {
    let name = meaning(class.name, &FUNCTOR);
    match (name.is_empty(), class.scope.last()) {
        (true, Some(scope)) => format!("{scope}::{}", class.name),
        (true, None) => class.name.to_owned(),
        (false, _) => name,
    }
}

/// Returns the tile of settings that begin with its sizes, as those of flash attention.
fn tile_of(settings: &Path<'_>) -> Option<String> {
    let sizes: Vec<&str> = settings.arguments.iter().take(3).copied().collect();
    let is_tile = sizes.len() == 3 && sizes.iter().all(|size| size.parse::<u64>().is_ok());
    is_tile.then(|| sizes.join("×"))
}

fn is_float(of_numbers: &str) -> bool {
    ["float", "double", "half"].iter().any(|start| of_numbers.starts_with(start))
        || SCALARS.contains(&of_numbers) && !is_integer(of_numbers)
}

fn is_integer(of_numbers: &str) -> bool {
    of_numbers == "size_t" || ["int", "long", "short", "char", "bool"].iter().any(|end| of_numbers.ends_with(end))
}

/// Returns whether all arguments of a class are values, as of a shape.
fn is_shape(class: &Path<'_>) -> bool {
    class.arguments.len() > 1 && class.arguments().all(|argument| matches!(argument, Argument::Value(_)))
}

/// Returns the class as it is shown where there is no operation: with its arguments if these are values.
fn shown_class(class: &Path<'_>) -> String {
    match class.arguments().all(|argument| matches!(argument, Argument::Value(_))) {
        true if !class.arguments.is_empty() => format!("{}<{}>", class.name, short_arguments(class)),
        _ => class.name.to_owned(),
    }
}

/// Returns the arguments of a class, each in its short form.
fn short_arguments(class: &Path<'_>) -> String {
    let short = class.arguments().map(|argument| match argument {
        Argument::Value(text) | Argument::Scalar(text) => text.to_owned(),
        Argument::Class(class) => shown_class(&class),
    });
    short.collect::<Vec<_>>().join(", ")
}

/// Words that say how a kernel reads memory, and not what it does.
const ADJECTIVES: [&str; 3] = ["vectorized", "unrolled", "legacy"];
/// Words of kernels that narrow columns leave out.
const TIGHT: [&str; 4] = ["cuda", "device", "template", "gpu"];
/// Words that every functor has.
const FUNCTOR: [&str; 5] = ["functor", "cuda", "gpu", "impl", "nocast"];
/// Words by which functors are known.
const FUNCTORS: [&str; 4] = ["functor", "functors", "op", "ops"];
/// Functors of the standard library, Thrust and CUB.
const STANDARD: [&str; 18] = [
    "plus",
    "minus",
    "multiplies",
    "divides",
    "modulus",
    "negate",
    "maximum",
    "minimum",
    "less",
    "greater",
    "equal_to",
    "logical_and",
    "logical_or",
    "Sum",
    "Max",
    "Min",
    "ArgMax",
    "ArgMin",
];
/// Words that mean no more than that it is a kernel.
const KERNEL: [&str; 3] = ["kernel", "kernels", "agent"];

/// Returns whether the class is an operation by its name.
fn is_functor(class: &Path<'_>) -> bool {
    let is_word = |word: &str| FUNCTORS.contains(&word.trim_matches('_').to_lowercase().as_str());
    words_of(class.name).any(is_word) || STANDARD.contains(&class.name)
}

/// Returns whether the class holds parameters of the kernel.
fn is_settings(class: &Path<'_>) -> bool {
    let words = ["traits", "policy", "hub", "config", "params", "metadata", "storage"];
    words_of(class.name).any(|word| words.iter().any(|settings| word.to_lowercase().starts_with(settings)))
}

/// Returns the name without the `left_out` words in it, and those that mean that it is a kernel.
fn meaning(name: &str, left_out: &[&str]) -> String {
    let mut text = String::new();
    for word in words_of(name) {
        // `Kernel2` is no more than `Kernel`.
        let lower = word.trim_matches('_').trim_end_matches(|c: char| c.is_ascii_digit()).to_lowercase();
        if !left_out.contains(&lower.as_str()) && !KERNEL.contains(&lower.as_str()) {
            text += word;
        }
    }
    text.trim_matches('_').to_owned()
}

/// Returns the name without the words that it begins with.
fn strip_words<'a>(name: &'a str, words: &[&str]) -> &'a str {
    let stripped = words.iter().find_map(|word| name.strip_prefix(word)?.strip_prefix('_'));
    stripped.map_or(name, |rest| strip_words(rest, words))
}

/// Returns the words of a name, each with the underscores after it: `Gelu`, `CUDA`, `Kernel`, `Impl`.
fn words_of(name: &str) -> impl Iterator<Item = &str> {
    let characters: Vec<(usize, char)> = name.char_indices().collect();
    let mut starts = vec![0];
    for (index, &(at, c)) in characters.iter().enumerate().skip(1) {
        let (before, after) = (characters[index - 1].1, characters.get(index + 1).map_or(' ', |next| next.1));
        let is_capital = c.is_uppercase() && (!before.is_uppercase() || after.is_lowercase());
        if is_capital || (before == '_' && c != '_') {
            starts.push(at);
        }
    }
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([name.len()]).collect();
    starts.into_iter().zip(ends).map(|(start, end)| &name[start..end])
}
