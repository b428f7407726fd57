//! Dates and times of day.

use crate::trace::Timestamp;

/// A date and a time of day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Utc {
    pub(super) year: u64,
    pub(super) month: u64,
    pub(super) day: u64,
    pub(super) hour: u64,
    pub(super) minute: u64,
    pub(super) second: u64,
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

#[cfg(test)]
mod tests {
    use super::Utc;
    use crate::trace::Timestamp;

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
