//! Numbers as text: the one way in which tables, findings, pages and commands print them.
//!
//! Sentences have three significant digits (`28.8 ms`, `1.50 MiB`), columns of times three decimals (`28.812 ms`), as
//! PyTorch's tables do. Programs should read JSON instead, which is exact.

use std::time::Duration;

/// Formats a time with three significant digits, for sentences: `28.8 ms`.
#[must_use]
pub fn time(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    let (scaled, unit) = match nanos {
        // What would be rounded to a thousand is one of the next unit.
        _ if nanos >= 999.5e6 => ((nanos / 1e9).max(1.0), "s"),
        _ if nanos >= 999.5e3 => ((nanos / 1e6).max(1.0), "ms"),
        _ => (nanos / 1e3, "µs"),
    };
    format!("{} {unit}", digits(scaled))
}

/// What stands for nothing: no time, or a value that is not known.
pub const NOTHING: &str = "–";

/// Formats a time with three decimals, for columns: `28.812 ms`; no time is [`NOTHING`].
#[must_use]
pub fn column_time(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    match nanos {
        0.0 => NOTHING.to_owned(),
        _ if nanos >= 1e9 => format!("{:.3} s", nanos / 1e9),
        _ if nanos >= 1e6 => format!("{:.3} ms", nanos / 1e6),
        _ => format!("{:.3} µs", nanos / 1e3),
    }
}

/// Formats a time that is known to three digits only, for columns: `~1.50 ms`.
#[must_use]
pub fn rough_time(time: Duration) -> String {
    format!("~{}", self::time(time))
}

/// Reads a time such as `50ms`, `1.5 s`, `200us` or `2m`. Returns `None` if it is not one.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(kernspan::units::parse_duration("1.5 s"), Some(Duration::from_millis(1500)));
/// assert_eq!(kernspan::units::parse_duration("soon"), None);
/// ```
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| c.is_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit.trim_end() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.trim().parse::<f64>().ok()? * seconds).ok()
}

/// Formats a percentage: `12.5 %`. One that would be rounded to zero is `<0.1 %`.
#[must_use]
pub fn percent(percent: f64) -> String {
    if percent > 0.0 && percent < 0.05 { "<0.1 %".to_owned() } else { format!("{percent:.1} %") }
}

/// Returns the text, or [`NOTHING`] if there is none.
pub(crate) fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| NOTHING.to_owned())
}

/// Formats a change of memory with three significant digits: `-8.00 KiB`.
#[must_use]
pub fn memory(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", self::bytes(bytes.unsigned_abs()))
}

/// Formats an amount of memory with three significant digits: `4.98 KiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let (scaled, unit) = match bytes {
        0x4000_0000.. => (bytes as f64 / 1_073_741_824.0, "GiB"),
        0x10_0000.. => (bytes as f64 / 1_048_576.0, "MiB"),
        0x400.. => (bytes as f64 / 1024.0, "KiB"),
        _ => return format!("{bytes} B"),
    };
    format!("{} {unit}", digits(scaled))
}

/// Formats a large count, such as that of parameters, with three digits and a decimal prefix: `33.6 M`. Returns `None`
/// for 0.
#[must_use]
pub fn count(count: u64) -> Option<String> {
    (count > 0).then(|| whole(count, "").trim_end().to_owned())
}

/// Formats a count of floating-point operations with three digits: `33.6 MFLOP`. Returns `None` for 0.
#[must_use]
pub fn flops(flops: u64) -> Option<String> {
    (flops > 0).then(|| whole(flops, "FLOP"))
}

/// Formats a number of calls, with those that are cut by the edge of a window apart: `12`, `12 + 1 cut`, `1 cut`.
#[must_use]
pub fn calls(whole: u64, cut: u64) -> String {
    match (whole, cut) {
        (whole, 0) => whole.to_string(),
        (0, cut) => format!("{cut} cut"),
        (whole, cut) => format!("{whole} + {cut} cut"),
    }
}

/// Formats a number per second with three digits and a decimal prefix: `61.2 G`.
#[must_use]
pub fn rate(rate: f64) -> String {
    amount(rate, "").trim_end().to_owned()
}

/// Formats floating-point operations per second with three digits: `7.39 TFLOP/s`.
#[must_use]
pub fn flop_rate(flops_per_second: f64) -> String {
    amount(flops_per_second, "FLOP/s")
}

/// Formats bytes per second with three digits and a decimal prefix, as vendors state bandwidths: `61.2 GB/s`.
#[must_use]
pub fn bandwidth(bytes_per_second: f64) -> String {
    amount(bytes_per_second, "B/s")
}

/// Formats an amount with three digits and a decimal prefix: `2.80 kJ`.
pub(crate) fn amount(amount: f64, unit: &str) -> String {
    let (amount, prefix) = scaled(amount);
    format!("{} {prefix}{unit}", digits(amount))
}

/// Formats an amount that is a whole number, exactly below a thousand.
fn whole(number: u64, unit: &str) -> String {
    if number < 1000 { format!("{number} {unit}") } else { amount(number as f64, unit) }
}

/// Splits a number into a smaller one and the decimal prefix for it: 61.2e9 is 61.2 and `G`.
pub(crate) fn scaled(number: f64) -> (f64, &'static str) {
    match number {
        _ if number >= 1e15 => (number / 1e15, "P"),
        _ if number >= 1e12 => (number / 1e12, "T"),
        _ if number >= 1e9 => (number / 1e9, "G"),
        _ if number >= 1e6 => (number / 1e6, "M"),
        _ if number >= 1e3 => (number / 1e3, "k"),
        _ => (number, ""),
    }
}

/// Formats a number with three significant digits: `123`, `1.23`, `0.0123`.
pub(crate) fn digits(number: f64) -> String {
    let decimals = if number > 0.0 { (2.0 - number.log10().floor()).clamp(0.0, 9.0) } else { 0.0 };
    format!("{number:.0$}", decimals as usize)
}

#[cfg(test)]
mod tests {
    use super::{
        NOTHING, bandwidth, column_time, count, digits, flop_rate, flops, memory, percent, rate, rough_time, time,
    };
    use std::time::Duration;

    #[test]
    fn numbers_have_the_unit_that_fits() {
        let times = [7, 1_500, 565_464, 999_600, 28_812_345, 61_000_000_000].map(Duration::from_nanos);
        assert_eq!(times.map(time), ["0.00700 µs", "1.50 µs", "565 µs", "1.00 ms", "28.8 ms", "61.0 s"]);
        let columns = ["0.007 µs", "1.500 µs", "565.464 µs", "999.600 µs", "28.812 ms", "61.000 s"];
        assert_eq!(times.map(column_time), columns);
        assert_eq!(rough_time(times[2]), "~565 µs");
        let counts = [0, 999, 33_554_432].map(count);
        assert_eq!(counts.each_ref().map(Option::as_deref), [None, Some("999"), Some("33.6 M")]);
        assert_eq!(
            [0.0, 0.5, 12.34, 61_230.0, 1.5e12, 989.5e12].map(rate),
            ["0", "0.500", "12.3", "61.2 k", "1.50 T", "990 T"]
        );
        assert_eq!([0.0, 0.04, 0.05, 12.34, 100.0].map(percent), ["0.0 %", "<0.1 %", "0.1 %", "12.3 %", "100.0 %"]);
        assert_eq!((flops(201_327_000).as_deref(), &*flop_rate(7.39e12)), (Some("201 MFLOP"), "7.39 TFLOP/s"));
        assert_eq!(column_time(Duration::ZERO), NOTHING);
        assert_eq!([512.0, 1.5669e9].map(bandwidth), ["512 B/s", "1.57 GB/s"]);
        assert_eq!([123.4, 1.234, 0.012_34].map(digits), ["123", "1.23", "0.0123"]);
        let sizes = [0, -1023, 1536, -64 << 20, 141 << 30].map(memory);
        assert_eq!(sizes, ["0 B", "-1023 B", "1.50 KiB", "-64.0 MiB", "141 GiB"]);
    }
}
