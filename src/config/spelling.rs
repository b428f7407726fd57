//! Suggestions for misspelt names.

/// Names that other tools use, and ours.
const OTHER_NAMES: [(&str, &str); 14] = [
    // torchtune
    ("wait_steps", "wait"),
    ("warmup_steps", "warmup"),
    ("active_steps", "active"),
    ("num_cycles", "repeat"),
    ("output_dir", "dir"),
    // torch.profiler and TensorBoard
    ("dir_name", "dir"),
    ("log_dir", "dir"),
    ("logdir", "dir"),
    ("use_cuda", "activities"),
    ("profile_batch", "steps"),
    ("schedule", "active"),
    // kernspan's builder
    ("backtraces", "with_stack"),
    ("KERNSPAN_OUT", "KERNSPAN_DIR"),
    ("json", "chrome"),
];

/// Returns the known name that was probably meant.
pub(super) fn similar<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let other = OTHER_NAMES.iter().find(|(other, _)| *other == name).map(|(_, ours)| *ours);
    if let Some(ours) = other.and_then(|ours| known.iter().find(|known| **known == ours)) {
        return Some(ours);
    }
    // A third of the letters may be wrong, as in `wiat` and `actve`.
    let allowed = name.chars().count().div_ceil(3);
    let distance = |known: &&&str| strsim::damerau_levenshtein(&name.to_lowercase(), &known.to_lowercase());
    known.iter().min_by_key(distance).filter(|best| distance(best) <= allowed).copied()
}

/// Returns `: did you mean …?`, or else the known names.
pub(super) fn suggestion(name: &str, known: &[&str]) -> String {
    match similar(name, known) {
        Some(meant) => format!(": did you mean `{meant}`?"),
        None => format!(": known are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::similar;

    #[test]
    fn similar_names_are_suggested() {
        let known = ["wait", "warmup", "active", "repeat", "dir"];
        let cases = [
            ("wiat", Some("wait")),
            ("warm_up", Some("warmup")),
            ("Active", Some("active")),
            ("num_cycles", Some("repeat")),
            ("output_dir", Some("dir")),
            ("profile_batch", None),
            ("optimizer", None),
        ];
        for (name, meant) in cases {
            assert_eq!(similar(name, &known), meant, "{name}");
        }
    }
}
