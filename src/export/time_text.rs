//! Times as text: microseconds as JSON has them, and dates.

use crate::trace::Timestamp;
use std::fmt;

/// A number of microseconds, as decimal text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Micros {
    /// The text ends in the middle of the buffer. The bytes after it are copied along, so that every copy has the same
    /// length, which is faster.
    buffer: [u8; 2 * Self::MAX_LEN],
    /// The index at which the text starts.
    start: usize,
}

impl Micros {
    /// The length of the longest text: that of `u64::MAX` [ticks](Self::ticks).
    const MAX_LEN: usize = 28;

    /// Returns the text of a number of nanoseconds, with three decimals.
    pub(super) fn of(nanos: u64) -> Self {
        let mut text = [b'.'; 2 * Self::MAX_LEN];
        let decimals = nanos % 1000;
        text[Self::MAX_LEN - 3] = b'0' + (decimals / 100) as u8;
        put_pair(&mut text, Self::MAX_LEN - 2, decimals);
        let start = put_integer(&mut text, Self::MAX_LEN - 4, nanos / 1000);
        Self { buffer: text, start }
    }

    /// Converts nanoseconds to ticks, 1024 of which are a microsecond. The order of times is preserved.
    pub(super) fn ticks(nanos: u64) -> u64 {
        let ticks = (u128::from(nanos) * u128::from(TICKS_PER_MICRO) + 500) / 1000;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Returns the text of a number of [ticks](Self::ticks), with ten decimals, which are exact. A reader that adds
    /// such times in floating point makes no error, so a range that ends where another begins still does.
    pub(super) fn of_ticks(ticks: u64) -> Self {
        /// `10_000_000_000 / TICKS_PER_MICRO`.
        const TEN_DECIMALS: u64 = 9_765_625;
        let mut text = [b'.'; 2 * Self::MAX_LEN];
        let mut decimals = ticks % TICKS_PER_MICRO * TEN_DECIMALS;
        for index in (Self::MAX_LEN - 10..Self::MAX_LEN).step_by(2).rev() {
            put_pair(&mut text, index, decimals);
            decimals /= 100;
        }
        let start = put_integer(&mut text, Self::MAX_LEN - 11, ticks / TICKS_PER_MICRO);
        Self { buffer: text, start }
    }

    /// Appends the text to a buffer.
    #[inline]
    pub(super) fn append_to(&self, buffer: &mut Vec<u8>) {
        let length = buffer.len() + Self::MAX_LEN - self.start;
        buffer.extend_from_slice(&self.buffer[self.start..][..Self::MAX_LEN]);
        buffer.truncate(length);
    }
}

/// The number of ticks in a microsecond.
const TICKS_PER_MICRO: u64 = 1024;

/// Writes the last two digits of a number at this index.
fn put_pair(text: &mut [u8], index: usize, number: u64) {
    text[index..index + 2].copy_from_slice(&PAIRS[number as usize % 100]);
}

/// Writes an integer that ends before the index `end`, and returns the index at which it starts.
fn put_integer(text: &mut [u8], end: usize, mut rest: u64) -> usize {
    let mut start = end;
    while rest >= 100 {
        start -= 2;
        put_pair(text, start, rest);
        rest /= 100;
    }
    if rest >= 10 {
        put_pair(text, start - 2, rest);
        start - 2
    } else {
        text[start - 1] = b'0' + rest as u8;
        start - 1
    }
}

/// The two digits of each number from `00` to `99`.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// A date and a time of day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Utc {
    pub(crate) year: u64,
    pub(crate) month: u64,
    pub(crate) day: u64,
    pub(crate) hour: u64,
    pub(crate) minute: u64,
    pub(crate) second: u64,
}

impl From<Timestamp> for Utc {
    fn from(at: Timestamp) -> Self {
        let seconds = at.as_unix_nanos() / 1_000_000_000;
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // In years that begin in March the leap day is the last, and the calendar repeats every 400 years.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        let (hour, minute) = (second / 3600, second / 60 % 60);
        Self { year: year + 400 * era + next, month, day, hour, minute, second: second % 60 }
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second } = self;
        write!(f, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

#[cfg(test)]
mod tests {
    use super::{Micros, Utc};
    use crate::trace::Timestamp;
    use proptest::prelude::*;

    fn text(micros: Micros) -> String {
        let mut text = Vec::new();
        micros.append_to(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn times_are_microseconds_with_three_decimals() {
        for (nanos, micros) in [(0, "0.000"), (7, "0.007"), (1_000, "1.000"), (1_234_056, "1234.056")] {
            assert_eq!(text(Micros::of(nanos)), micros);
        }
    }

    proptest! {
        #[test]
        fn any_time_is_exact(nanos: u64, shift in 0..64) {
            let nanos = nanos >> shift;
            prop_assert_eq!(text(Micros::of(nanos)), format!("{}.{:03}", nanos / 1000, nanos % 1000));
        }

        #[test]
        fn ticks_keep_their_order_and_add_up_in_floating_point(mut nanos in prop::array::uniform3(0_u64..1 << 50)) {
            nanos.sort_unstable();
            let ticks = nanos.map(Micros::ticks);
            let orders = |times: [u64; 3]| times.map(|at| times.map(|other| at.cmp(&other)));
            prop_assert_eq!(orders(nanos), orders(ticks));
            let float = |ticks| text(Micros::of_ticks(ticks)).parse::<f64>().unwrap();
            prop_assert_eq!(float(ticks[0]) + float(ticks[1] - ticks[0]), float(ticks[1]));
            prop_assert_eq!(float(ticks[0]) + float(ticks[2] - ticks[0]), float(ticks[2]));
            prop_assert!((float(ticks[1]) - nanos[1] as f64 / 1e3).abs() < 0.001);
        }
    }

    #[test]
    fn any_number_of_ticks_has_room() {
        assert_eq!(text(Micros::of_ticks(u64::MAX)), "18014398509481983.9990234375");
        assert_eq!(text(Micros::of_ticks(0)), "0.0000000000");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds: u64| {
            let Utc { year, month, day, hour, minute, second } =
                Timestamp::from_unix_nanos(seconds * 1_000_000_000).into();
            [year, month, day, hour, minute, second]
        };
        assert_eq!(at(0), [1970, 1, 1, 0, 0, 0]);
        assert_eq!(at(951_782_399), [2000, 2, 28, 23, 59, 59]);
        assert_eq!(at(951_782_400), [2000, 2, 29, 0, 0, 0]);
        assert_eq!(at(1_709_251_199), [2024, 2, 29, 23, 59, 59]);
        assert_eq!(at(4_102_444_800), [2100, 1, 1, 0, 0, 0]);
    }
}
