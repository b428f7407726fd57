//! Times as text.

/// A time in microseconds, as a decimal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Micros {
    text: [u8; Self::MOST],
    first: usize,
}

impl Micros {
    /// Those of as many [ticks](Self::ticks) as there can be.
    const MOST: usize = 28;

    /// Of nanoseconds, with three decimals.
    pub(super) fn of(nanos: u64) -> Self {
        let mut text = [b'.'; Self::MOST];
        let decimals = nanos % 1000;
        text[Self::MOST - 3] = b'0' + (decimals / 100) as u8;
        put(&mut text, Self::MOST - 2, decimals);
        let first = whole(&mut text, Self::MOST - 4, nanos / 1000);
        Self { text, first }
    }

    /// Nanoseconds in parts of a microsecond that are a power of two, and finer. What is equal, earlier or later remains so.
    pub(super) fn ticks(nanos: u64) -> u64 {
        let ticks = (u128::from(nanos) * u128::from(TICKS) + 500) / 1000;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Of [ticks](Self::ticks), with ten decimals, which are all there are: a reader that adds such times in floating point makes no
    /// error, so that what ends when another begins still does.
    pub(super) fn of_ticks(ticks: u64) -> Self {
        /// `10_000_000_000 / TICKS`.
        const TEN_DECIMALS: u64 = 9_765_625;
        let mut text = [b'.'; Self::MOST];
        let mut decimals = ticks % TICKS * TEN_DECIMALS;
        for place in (Self::MOST - 10..Self::MOST).step_by(2).rev() {
            put(&mut text, place, decimals);
            decimals /= 100;
        }
        let first = whole(&mut text, Self::MOST - 11, ticks / TICKS);
        Self { text, first }
    }
}

/// In a microsecond.
const TICKS: u64 = 1024;

/// Writes the last two digits of a number.
fn put(text: &mut [u8], place: usize, number: u64) {
    text[place..place + 2].copy_from_slice(&PAIRS[number as usize % 100]);
}

/// Writes a number that ends before this place, and says where it begins.
fn whole(text: &mut [u8], end: usize, mut rest: u64) -> usize {
    let mut first = end;
    while rest >= 100 {
        first -= 2;
        put(text, first, rest);
        rest /= 100;
    }
    if rest >= 10 {
        put(text, first - 2, rest);
        first - 2
    } else {
        text[first - 1] = b'0' + rest as u8;
        first - 1
    }
}

/// `00` to `99`.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

impl AsRef<[u8]> for Micros {
    fn as_ref(&self) -> &[u8] {
        &self.text[self.first..]
    }
}

#[cfg(test)]
mod tests {
    use super::Micros;
    use proptest::prelude::*;

    fn text(micros: Micros) -> String {
        String::from_utf8(micros.as_ref().to_vec()).unwrap()
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
            prop_assert_eq!(nanos.map(|at| nanos.map(|other| at.cmp(&other))), ticks.map(|at| ticks.map(|other| at.cmp(&other))));
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
}
