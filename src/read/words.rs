//! Finds the ends of strings, numbers and space, eight bytes at a time.

/// A word of eight bytes that are all 1.
const ONES: u64 = u64::MAX / 255;
/// The highest bit of each byte of a word.
const HIGHS: u64 = ONES << 7;

/// Returns the eight bytes at `at`, the first one lowest, if there are that many.
#[inline]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let chunk = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*chunk))
}

/// Returns the index of the first quote, backslash or control character at or after `at`, or the length.
#[inline]
pub(super) fn plain_until(bytes: &[u8], mut at: usize) -> usize {
    // Eight bytes at a time. A byte is less than another if subtracting that borrows, which sets the highest bit; bytes
    // that already have this bit are not ASCII. Borrows reach only later bytes, so the first one found is right.
    while let Some(word) = word_at(bytes, at) {
        let quotes = (word ^ (ONES * u64::from(b'"'))).wrapping_sub(ONES);
        let backslashes = (word ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
        let controls = word.wrapping_sub(ONES * 0x20);
        let found = (quotes | backslashes | controls) & !word & HIGHS;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let is_plain = |byte: &&u8| !matches!(**byte, b'"' | b'\\' | 0..0x20);
    at + bytes.get(at..).unwrap_or_default().iter().take_while(is_plain).count()
}

/// Returns the index of the first byte at or after `at` that is not a space, or the length.
#[inline]
pub(super) fn spaces_until(bytes: &[u8], mut at: usize) -> usize {
    while let Some(word) = word_at(bytes, at) {
        let found = word ^ (ONES * u64::from(b' '));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + bytes.get(at..).unwrap_or_default().iter().take_while(|byte| **byte == b' ').count()
}

/// Returns the index of the first byte at or after `at` that is not a digit, or the length.
#[inline]
pub(super) fn digits_until(bytes: &[u8], mut at: usize) -> usize {
    // As in `plain_until`. Adding also carries only into later bytes.
    while let Some(word) = word_at(bytes, at) {
        let above = word.wrapping_add(ONES * u64::from(0x7f - b'9'));
        let below = word.wrapping_sub(ONES * u64::from(b'0'));
        let found = (above | below | word) & HIGHS;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + bytes.get(at..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count()
}

#[cfg(test)]
mod tests {
    use super::{digits_until, plain_until, spaces_until};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn the_end_of_plain_text_is_found(bytes in prop::collection::vec(any::<u8>(), 0..40), at in 0_usize..41) {
            let is_plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
            let expected = (at..bytes.len()).find(|&at| !is_plain(bytes[at])).unwrap_or(at.max(bytes.len()));
            prop_assert_eq!(plain_until(&bytes, at), expected);
        }

        #[test]
        fn the_end_of_digits_is_found(
            bytes in prop::collection::vec(prop_oneof![3 => b'0'..=b'9', 1 => any::<u8>()], 0..40),
            at in 0_usize..41,
        ) {
            let expected = (at..bytes.len()).find(|&at| !bytes[at].is_ascii_digit()).unwrap_or(at.max(bytes.len()));
            prop_assert_eq!(digits_until(&bytes, at), expected);
        }

        #[test]
        fn the_end_of_spaces_is_found(text in " {0,20}[ a\n]{0,3} {0,20}", at in 0_usize..44) {
            let bytes = text.as_bytes();
            let expected = (at..bytes.len()).find(|&at| bytes[at] != b' ').unwrap_or(at.max(bytes.len()));
            prop_assert_eq!(spaces_until(bytes, at), expected);
        }
    }
}
