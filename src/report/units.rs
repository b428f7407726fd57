use std::time::Duration;

/// A time as PyTorch prints it: three decimals in the largest unit that is not below one.
pub(super) fn time(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    match nanos {
        _ if nanos >= 1e9 => format!("{:.3}s", nanos / 1e9),
        _ if nanos >= 1e6 => format!("{:.3}ms", nanos / 1e6),
        _ => format!("{:.3}µs", nanos / 1e3),
    }
}

/// A part of a whole, in percent.
pub(super) fn percent(part: f64) -> String {
    format!("{part:.2}%")
}

/// How many percent of `all` the part is; none of nothing.
pub(super) fn percent_of(part: Duration, all: Duration) -> f64 {
    if all.is_zero() { 0.0 } else { 100.0 * part.as_secs_f64() / all.as_secs_f64() }
}

/// What is known, or `--`, as PyTorch has it.
pub(super) fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "--".to_owned())
}

/// Memory as PyTorch prints it: two decimals, `KB` of 1024 bytes.
pub(super) fn memory(bytes: i64) -> String {
    let (scaled, unit) = match bytes.unsigned_abs() {
        0x4000_0000.. => (bytes as f64 / 1_073_741_824.0, "GB"),
        0x10_0000.. => (bytes as f64 / 1_048_576.0, "MB"),
        0x400.. => (bytes as f64 / 1024.0, "KB"),
        _ => return format!("{bytes} B"),
    };
    format!("{scaled:.2} {unit}")
}

/// Memory that is not less than nothing, printed the same.
pub(super) fn bytes(bytes: u64) -> String {
    memory(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// A count of floating-point operations or bytes, with a decimal prefix; `--` for none, as PyTorch has it.
pub(super) fn count(count: u64) -> String {
    let (scaled, prefix) = match count as f64 {
        count if count >= 1e15 => (count / 1e15, "P"),
        count if count >= 1e12 => (count / 1e12, "T"),
        count if count >= 1e9 => (count / 1e9, "G"),
        count if count >= 1e6 => (count / 1e6, "M"),
        count if count >= 1e3 => (count / 1e3, "k"),
        0.0 => return "--".to_owned(),
        count => return format!("{count}"),
    };
    format!("{scaled:.3}{prefix}")
}

#[cfg(test)]
mod tests {
    use super::{count, memory, time};
    use std::time::Duration;

    #[test]
    fn numbers_have_the_unit_that_fits() {
        let times = [7, 1_500, 2_000_000, 61_000_000_000].map(|nanos| time(Duration::from_nanos(nanos)));
        assert_eq!(times, ["0.007µs", "1.500µs", "2.000ms", "61.000s"]);
        assert_eq!([0, 999, 33_554_432].map(count), ["--", "999", "33.554M"]);
        let sizes = [0, -1023, 1536, -64 << 20, 141 << 30].map(memory);
        assert_eq!(sizes, ["0 B", "-1023 B", "1.50 KB", "-64.00 MB", "141.00 GB"]);
    }
}
