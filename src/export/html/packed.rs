//! How a page stores hundreds of thousands of items: numbers packed into bytes, bytes as text, and each name once.

use crate::{
    export::json::{Array, Object},
    report::{Averages, short_kernels},
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// Whole numbers one after another, seven bits to a byte, the lowest first. The high bit says that more bytes follow.
///
/// This is LEB128, the variable-length encoding of DWARF and WebAssembly. Most numbers in a timeline are differences
/// between neighbours, which fit one or two bytes.
#[derive(Debug, Default)]
pub(super) struct Packed(Vec<u8>);

impl Packed {
    /// The number of bytes written as one string. It is a multiple of three, so that only the last string is padded,
    /// and small enough that a page never holds all its data as text twice.
    const CHUNK: usize = 48 << 10;

    /// Reserves about this many bytes, so that the buffer need not be doubled on the way.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(super) fn push(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }

    /// Writes the bytes as an array of strings in base64.
    pub(super) fn write(&self, key: &'static str, object: &mut Object<'_>) {
        object.array(key, |array| self.0.chunks(Self::CHUNK).for_each(|chunk| array.string(&base64(chunk))));
    }
}

/// Returns a number that is small if this one is near zero, positive or negative: 0, −1, 1, −2 become 0, 1, 2, 3.
pub(super) fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

/// Encodes bytes in base64.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let is_padding = digit > group.len();
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(if is_padding { '=' } else { char::from(DIGITS[value as usize]) });
        }
    }
    text
}

/// The names of spans and kernels in a page, without duplicates. Rows refer to them by index.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    indices: HashMap<Arc<str>, usize>,
    /// The names as they are shown.
    names: Vec<Arc<str>>,
    /// The bytes of all names.
    bytes: usize,
    /// The indices of the names of kernels and copies.
    work: BTreeSet<usize>,
}

impl Names {
    /// The maximum length of a name in characters. C++ templates can have many thousands.
    const LONGEST: usize = 1_000;
    /// The maximum number of names. Later ones are all called [`Averages::OTHERS`].
    const MOST: usize = 50_000;
    /// The maximum size of all names in bytes: a few hundred for each of the kernels and operations that a page shows.
    const BYTES: usize = 4 << 20;

    /// Returns the index of a name. Names that look alike once truncated share one.
    pub(super) fn index(&mut self, name: &str) -> usize {
        let cut = || name.char_indices().nth(Self::LONGEST).map(|(end, _)| format!("{}…", &name[..end]));
        let cut = if name.len() > Self::LONGEST { cut() } else { None };
        let name = cut.as_deref().unwrap_or(name);
        if let Some(&index) = self.indices.get(name) {
            return index;
        }
        let is_full = self.names.len() >= Self::MOST || self.bytes.saturating_add(name.len()) > Self::BYTES;
        if is_full && name != Averages::OTHERS {
            return self.index(Averages::OTHERS);
        }
        let name: Arc<str> = name.into();
        self.bytes = self.bytes.saturating_add(name.len());
        self.names.push(Arc::clone(&name));
        self.indices.insert(name, self.names.len() - 1);
        self.names.len() - 1
    }

    /// Returns the index of the name of a kernel or a copy, which is shown in its short form.
    pub(super) fn work(&mut self, name: &str) -> usize {
        let index = self.index(name);
        self.work.insert(index);
        index
    }

    /// Returns the name with this index.
    pub(super) fn get(&self, index: usize) -> &str {
        &self.names[index]
    }

    /// Returns whether this name is at the index, in full.
    pub(super) fn has(&self, index: usize, name: &str) -> bool {
        self.names.get(index).is_some_and(|known| **known == *name)
    }

    pub(super) fn write(&self, array: &mut Array<'_>) {
        self.names.iter().for_each(|name| array.string(name));
    }

    /// Writes the short names of kernels, each after the index of the full one.
    pub(super) fn write_short(&self, array: &mut Array<'_>) {
        let full: Vec<&str> = self.work.iter().map(|&index| self.get(index)).collect();
        for (index, short) in
            self.work.iter().zip(short_kernels(&full)).filter(|(index, short)| self.get(**index) != short)
        {
            array.array(|pair| {
                pair.number(*index);
                pair.string(&short);
            });
        }
    }
}

/// Returns a path as text. `names` are those of its spans, from the inside out. The middle of a deep path is left out.
pub(super) fn shortened_path<'a>(names: impl Iterator<Item = &'a str>) -> String {
    /// Names that are shown at the inner end: as many as fit a line.
    const INNER: usize = 20;
    let mut names = names.fuse();
    let mut shown: Vec<_> = names.by_ref().take(INNER).map(str::to_owned).collect();
    let mut outermost = None;
    let left_out = names.inspect(|name| outermost = Some((*name).to_owned())).count().saturating_sub(1);
    if left_out > 0 {
        shown.push(format!("… ({left_out} more)"));
    }
    shown.extend(outermost);
    shown.reverse();
    shown.join(" › ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Names, Packed, base64, shortened_path, zigzag};
    use crate::report::Averages;

    /// Returns the numbers in the strings of base64 that [`Packed::write`] has written.
    pub(crate) fn unpack(strings: &[&str]) -> Vec<u64> {
        let digit = |byte: u8| match byte {
            b'A'..=b'Z' => u32::from(byte - b'A'),
            b'a'..=b'z' => u32::from(byte - b'a') + 26,
            b'0'..=b'9' => u32::from(byte - b'0') + 52,
            b'+' => 62,
            _ => 63,
        };
        let mut numbers = Vec::new();
        let (mut number, mut shift) = (0, 0);
        for group in strings.iter().flat_map(|text| text.as_bytes().chunks(4)) {
            let digits: Vec<u32> = group.iter().filter(|&&byte| byte != b'=').map(|&byte| digit(byte)).collect();
            let bits = digits.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - digits.len()));
            for byte in &bits.to_be_bytes()[1..digits.len()] {
                number |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    numbers.push(std::mem::take(&mut number));
                    shift = 0;
                }
            }
        }
        numbers
    }

    #[test]
    fn bytes_are_those_of_the_standard() {
        let texts = ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    }

    #[test]
    fn small_numbers_take_one_byte_and_all_come_back() {
        let numbers = [0, 1, 127, 128, 300, 1 << 35, u64::MAX];
        let mut packed = Packed::default();
        numbers[..3].iter().for_each(|&number| packed.push(number));
        assert_eq!(packed.len(), 3);
        numbers[3..].iter().for_each(|&number| packed.push(number));
        assert_eq!(unpack(&[&base64(&packed.0)]), numbers);
        assert_eq!([0, -1, 1, -64, i64::MIN].map(zigzag), [0, 1, 2, 127, u64::MAX]);
    }

    #[test]
    fn names_take_bounded_memory() {
        let mut names = Names::default();
        let indices: Vec<_> =
            (0..10_000).map(|number| names.index(&format!("{number}{}", "x".repeat(5_000)))).collect();
        assert!(names.bytes <= Names::BYTES + Averages::OTHERS.len(), "{}", names.bytes);
        assert_eq!(names.get(indices[0]).chars().count(), Names::LONGEST + 1);
        assert_eq!(names.get(indices[9_999]), Averages::OTHERS);
    }

    #[test]
    fn the_middle_of_a_deep_path_is_left_out() {
        let path = |depth: usize| shortened_path((0..depth).rev().map(|_| "f"));
        assert_eq!(path(3), "f › f › f");
        assert_eq!(path(21).matches('f').count(), 21);
        assert!(path(1_000).starts_with("f › … (979 more) › f › "), "{}", path(1_000));
    }
}
