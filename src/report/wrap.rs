//! The width of printed text: that of the terminal, and lines that are wrapped to fit.

use std::fmt;
use unicode_width::UnicodeWidthStr;

/// The most columns of text that a printed table takes, if no other width was set.
///
/// It does not depend on the terminal, so that the same report prints the same text wherever it is printed.
pub(super) const WIDTH: usize = 120;

/// Returns the number of columns of the terminal, or `None` if standard output is no terminal.
pub(super) fn terminal_width() -> Option<usize> {
    #[cfg(unix)]
    let columns = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    #[cfg(not(unix))]
    let columns = None;
    columns.filter(|&columns| columns > 0)
}

/// Text that is wrapped to fit the terminal.
///
/// ```
/// use kernspan::{analysis::FindingKind, report::Prose};
///
/// println!("{}", Prose::of_markdown(FindingKind::HostSync.explanation()).fit_terminal());
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing unless it is printed"]
pub struct Prose {
    /// Paragraphs and items of lists, a line each; empty lines are between blocks.
    lines: Vec<String>,
    width: usize,
}

impl Prose {
    /// Takes the text of paragraphs and lists in Markdown: lines are joined, and marks of links and of bold text left
    /// out.
    pub fn of_markdown(text: &str) -> Self {
        let mut lines: Vec<String> = Vec::new();
        for line in text.lines() {
            let trimmed = line.trim();
            let begins = trimmed.is_empty() || trimmed.starts_with("- ");
            match lines.last_mut() {
                Some(last) if !begins && !last.is_empty() => *last += &format!(" {trimmed}"),
                _ => lines.push(trimmed.to_owned()),
            }
        }
        Self { lines: lines.iter().map(|line| plain(line)).collect(), width: WIDTH }
    }

    /// Sets the most columns of text. By default, these are 120.
    pub fn width(self, columns: usize) -> Self {
        Self { width: columns, ..self }
    }

    /// Sets the width to that of the terminal, if standard output is one.
    pub fn fit_terminal(self) -> Self {
        let width = terminal_width().unwrap_or(self.width);
        Self { width, ..self }
    }
}

impl fmt::Display for Prose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            let indent = if line.starts_with("- ") { "  " } else { "" };
            writeln!(f, "{}", wrap_with(line, self.width, indent))?;
        }
        Ok(())
    }
}

/// Returns a line of Markdown without marks of bold text and without the targets of links.
fn plain(line: &str) -> String {
    let line = line.replace("**", "");
    let (mut plain, mut rest) = (String::new(), line.as_str());
    while let Some((before, link)) = rest.split_once('[') {
        let parts = link.split_once("](").and_then(|(text, target)| Some((text, target.split_once(')')?.1)));
        let Some((text, after)) = parts.filter(|(text, _)| !text.contains(['[', ']'])) else {
            plain.extend([before, "["]);
            rest = link;
            continue;
        };
        plain.extend([before, text]);
        rest = after;
    }
    plain + rest
}

/// Wraps each line of the text at spaces, to at most `width` columns. Lines that go on are indented by two spaces. A
/// word that is wider than that, such as a path, stays whole.
pub(super) fn wrap(text: &str, width: usize) -> String {
    wrap_with(text, width, "  ")
}

fn wrap_with(text: &str, width: usize, indent: &str) -> String {
    let mut wrapped = String::new();
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            wrapped.push('\n');
        }
        let mut used = 0;
        for (number, word) in line.split(' ').enumerate() {
            let space = usize::from(number > 0);
            if number > 0 && used + space + word.width() > width {
                wrapped.extend(["\n", indent]);
                used = indent.len();
            } else if number > 0 {
                wrapped.push(' ');
                used += space;
            }
            wrapped.push_str(word);
            used += word.width();
        }
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::{Prose, wrap};

    #[test]
    fn lines_are_wrapped_at_spaces() {
        assert_eq!(wrap("one two three\nfour\n", 13), "one two three\nfour\n");
        assert_eq!(wrap("one two three\nfour\n", 12), "one two\n  three\nfour\n");
        assert_eq!(wrap("see /a/very/long/path of it", 10), "see\n  /a/very/long/path\n  of it");
        assert_eq!(wrap("", 10), "");
    }

    #[test]
    fn markdown_is_printed_without_its_marks() {
        let text = "**One** two,\nsee [three](#three) and [4].\n\n- `five`\n  six\n- seven";
        let prose = |width| Prose::of_markdown(text).width(width).to_string();
        assert_eq!(prose(80), "One two, see three and [4].\n\n- `five` six\n- seven\n");
        assert_eq!(prose(9), "One two,\nsee three\nand [4].\n\n- `five`\n  six\n- seven\n");
        assert_eq!(Prose::of_markdown("").to_string(), "");
    }
}
