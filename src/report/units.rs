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
    use super::{count, time};
    use std::time::Duration;

    #[test]
    fn numbers_have_the_unit_that_fits() {
        let times = [7, 1_500, 2_000_000, 61_000_000_000].map(|nanos| time(Duration::from_nanos(nanos)));
        assert_eq!(times, ["0.007µs", "1.500µs", "2.000ms", "61.000s"]);
        assert_eq!([0, 999, 33_554_432].map(count), ["--", "999", "33.554M"]);
    }
}
