//! Patterns of spans.

/// Returns whether a pattern fits the last name of a path, or all of it as `outer > inner`. A `*` stands for any text.
pub(super) fn matches(pattern: &str, path: &[String]) -> bool {
    let last = path.last().map_or("", String::as_str);
    fits(pattern, last) || fits(pattern, &path.join(" > "))
}

fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_text() {
        let path = ["step", "forward", "attention"].map(str::to_owned);
        let fitting = ["attention", "att*", "*", "*tent*", "step > *", "step > forward > attention", "step*attention"];
        assert!(fitting.iter().all(|pattern| matches(pattern, &path)));
        let others = ["forward", "att", "*x*", "tention", "step > forward", "attention*attention", ""];
        assert!(!others.iter().any(|pattern| matches(pattern, &path)));
    }
}
