//! The demangled names of C++ functions and types, as a path with template arguments. Names may be cut short by whoever
//! recorded them, so brackets that are never closed end with the text.

/// A function or a type: the last part of its path that has a name, and what surrounds it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Path<'a> {
    /// The parts before it: namespaces, and types that it is defined in.
    pub(super) scope: Vec<&'a str>,
    pub(super) name: &'a str,
    /// The template arguments.
    pub(super) arguments: Vec<&'a str>,
    /// Of a lambda, which has the name of the function that it is in.
    pub(super) lambda: Option<Lambda<'a>>,
}

/// A lambda in a function, perhaps in other lambdas of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lambda<'a> {
    /// The types of the parameters of the innermost one.
    pub(super) parameters: &'a str,
    /// The number of each lambda in its function, from the outside in: `#3#7#1`.
    pub(super) numbers: String,
}

/// A template argument.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Argument<'a> {
    /// A number, `true`, or an enumerator such as `(Order)0`.
    Value(&'a str),
    /// A type of numbers, such as `float`.
    Scalar(&'a str),
    Class(Path<'a>),
}

/// Types of numbers that are classes of a library.
pub(super) const SCALARS: [&str; 9] =
    ["BFloat16", "Half", "complex", "bfloat16_t", "half_t", "tfloat32_t", "__half", "__nv_bfloat16", "size_t"];

/// Parses the name of a function, with or without its return type and parameters; `None` if it is not one of C++.
pub(super) fn function(name: &str) -> Option<Path<'_>> {
    let end = parameters_at(name).unwrap_or(name.len());
    let signature = &name[..end];
    // Only a template has its return type in its name.
    let start = outside(signature).filter(|&at| signature[at..].starts_with(' ')).last().map_or(0, |at| at + 1);
    let is_template = signature[start..].contains('<') || signature.starts_with("void ");
    let path = Path::parse(&signature[start..])?;
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.');
    (path.name.chars().all(is_plain) && (start == 0 || is_template)).then_some(path)
}

impl<'a> Path<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut path = Self::default();
        for part in split(text, "::") {
            // As GCC and Clang write it: `{lambda(int)#1}`, `'lambda0'(int)`.
            if let Some(rest) = part.strip_prefix("{lambda").or_else(|| part.strip_prefix("'lambda")) {
                let lambda = path.lambda.get_or_insert_default();
                let (before, inside) = rest.split_once('(').unwrap_or((rest, ""));
                let (parameters, after) = inside.split_at(closing(inside));
                lambda.parameters = parameters;
                lambda.numbers += before.trim_end_matches('\'');
                lambda.numbers += after.trim_matches([')', '}']);
                continue;
            }
            let end = part.find(['<', '(', '{', ' ']).unwrap_or(part.len());
            let (name, rest) = part.split_at(end);
            let arguments = |rest: &'a str| {
                let inside = rest.strip_prefix('<').unwrap_or_default();
                split(&inside[..closing(inside)], ",").map(str::trim)
            };
            // `operator()` of a lambda, `(anonymous namespace)`, `{unnamed type#1}`
            if name.is_empty() || name == "operator" {
                path.arguments.extend(arguments(rest.trim_start_matches("()")));
                continue;
            }
            if !path.name.is_empty() {
                path.scope.push(path.name);
            }
            path.name = name;
            path.lambda = None;
            path.arguments = arguments(rest).collect();
        }
        (!path.name.is_empty()).then_some(path)
    }

    /// Returns the template arguments.
    pub(super) fn arguments(&self) -> impl Iterator<Item = Argument<'a>> + use<'a, '_> {
        self.arguments.iter().filter_map(|text| Argument::parse(text))
    }
}

impl<'a> Argument<'a> {
    /// Parses an argument; `None` if it is nothing that a name is made of, such as the type of a function.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let text = text.trim_start_matches("const ").trim_end_matches([' ', '*', '&']);
        let text = text.strip_suffix(" const").unwrap_or(text).trim_end_matches([' ', '*', '&']);
        let is_enumerator = text.starts_with('(') && !text.starts_with("(anonymous namespace)");
        let is_number = text.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit());
        if is_enumerator || is_number || matches!(text, "true" | "false") {
            let value = if is_enumerator { &text[text.find(')').map_or(0, |at| at + 1)..] } else { text };
            return Some(Self::Value(value.trim_end_matches(['u', 'l'])));
        }
        let is_builtin = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == ' ';
        if !text.is_empty() && text.chars().all(is_builtin) {
            return Some(Self::Scalar(text));
        }
        let path = Path::parse(text)?;
        match SCALARS.contains(&path.name) && path.lambda.is_none() {
            true => Some(Self::Scalar(path.name)),
            false => Some(Self::Class(path)),
        }
    }
}

/// Splits a text at each separator outside of brackets.
pub(super) fn split<'a>(text: &'a str, separator: &'static str) -> impl Iterator<Item = &'a str> {
    let mut cuts = Vec::new();
    for at in outside(text) {
        let is_after = cuts.last().is_none_or(|&last| last + separator.len() <= at);
        if is_after && text[at..].starts_with(separator) {
            cuts.push(at);
        }
    }
    let starts = std::iter::once(0).chain(cuts.clone().into_iter().map(|at| at + separator.len()));
    let ends = cuts.into_iter().chain([text.len()]);
    starts.zip(ends).map(|(start, end)| &text[start..end]).filter(|part| !part.is_empty())
}

/// Returns where the parameters of a function begin: the last parentheses outside of all brackets that follow a name.
fn parameters_at(name: &str) -> Option<usize> {
    let is_list = |at: &usize| {
        let before = name[..*at].chars().next_back();
        name[*at..].starts_with('(') && before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '>' | ')'))
    };
    outside(name).filter(is_list).last()
}

/// Returns where the bracket that was opened before the text is closed, or the end of the text.
fn closing(text: &str) -> usize {
    let mut depth = 1_usize;
    for (at, c, is_bracket) in brackets(text) {
        match c {
            '<' | '(' | '[' | '{' if is_bracket => depth += 1,
            '>' | ')' | ']' | '}' if is_bracket => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Returns the places in a text that are outside of all brackets.
fn outside(text: &str) -> impl Iterator<Item = usize> {
    let mut depth = 0_usize;
    brackets(text).filter_map(move |(at, c, is_bracket)| {
        let is_outside = depth == 0;
        match c {
            '<' | '(' | '[' | '{' if is_bracket => depth += 1,
            '>' | ')' | ']' | '}' if is_bracket => depth = depth.saturating_sub(1),
            _ => {}
        }
        is_outside.then_some(at)
    })
}

/// Returns the characters of a text, and whether each is no arrow or operator such as `->` and `operator<<`.
fn brackets(text: &str) -> impl Iterator<Item = (usize, char, bool)> {
    let mut before = ' ';
    text.char_indices().map(move |(at, c)| {
        let is_operator = matches!(c, '<' | '>')
            && (before == '-' || text[..at].trim_end_matches(['<', '>', '=']).ends_with("operator"));
        before = c;
        (at, c, !is_operator)
    })
}

#[cfg(test)]
mod tests {
    use super::{Argument, Lambda, Path, function};

    fn path<'a>(scope: &[&'a str], name: &'a str, arguments: &[&'a str]) -> Path<'a> {
        Path { scope: scope.to_vec(), name, arguments: arguments.to_vec(), lambda: None }
    }

    #[test]
    fn a_function_is_its_path_and_its_template_arguments() {
        for (name, expected) in [
            ("void add<float>(float*, int)", path(&[], "add", &["float"])),
            ("add(float*)", path(&[], "add", &[])),
            (
                "std::enable_if<true, void>::type ns::add<4, A<B<int> > >(int)",
                path(&["ns"], "add", &["4", "A<B<int> >"]),
            ),
            ("void (anonymous namespace)::scale<(Mode)1>(int)", path(&[], "scale", &["(Mode)1"])),
            ("void apply<void (*)(int, float)>(void (*)(int, float))", path(&[], "apply", &["void (*)(int, float)"])),
            ("void ns::run<decltype(a->b), int>(int) [clone .kd]", path(&["ns"], "run", &["decltype(a->b)", "int"])),
            ("void cut<A<int, B<flo", path(&[], "cut", &["A<int, B<flo"])),
        ] {
            assert_eq!(function(name), Some(expected), "{name}");
        }
        for name in ["Memcpy HtoD (Pageable -> Device)", "the other kernels", "", "(", "::", "{lambda()#1}", "a b<"] {
            assert!(function(name).is_none_or(|path| name.ends_with(&format!("{}<", path.name))), "{name}");
        }
    }

    #[test]
    fn a_lambda_has_the_name_of_its_function() {
        let text = "at::copy(at::It&)::{lambda()#3}::operator()() const::{lambda(float, int)#1}";
        let lambda = Lambda { parameters: "float, int", numbers: "#3#1".to_owned() };
        let expected = Path { lambda: Some(lambda), ..path(&["at"], "copy", &[]) };
        assert_eq!(Argument::parse(text), Some(Argument::Class(expected)));
        assert_eq!(Argument::parse("c10::Half const*"), Some(Argument::Scalar("Half")));
        assert_eq!(Argument::parse("unsigned int"), Some(Argument::Scalar("unsigned int")));
        assert_eq!(Argument::parse("-1"), Some(Argument::Value("-1")));
    }
}
