//! Wrapping of lines.

use unicode_width::UnicodeWidthStr;

/// Wraps each line of the text at spaces, to at most `width` columns. Lines that go on are indented by two spaces. A
/// word that is wider than that, such as a path, stays whole.
pub(super) fn wrap(text: &str, width: usize) -> String {
    let mut wrapped = String::new();
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            wrapped.push('\n');
        }
        let mut used = 0;
        for (number, word) in line.split(' ').enumerate() {
            let space = usize::from(number > 0);
            if number > 0 && used + space + word.width() > width {
                wrapped.push_str("\n  ");
                used = 2;
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
    use super::wrap;

    #[test]
    fn lines_are_wrapped_at_spaces() {
        assert_eq!(wrap("one two three\nfour\n", 13), "one two three\nfour\n");
        assert_eq!(wrap("one two three\nfour\n", 12), "one two\n  three\nfour\n");
        assert_eq!(wrap("see /a/very/long/path of it", 10), "see\n  /a/very/long/path\n  of it");
        assert_eq!(wrap("", 10), "");
    }
}
