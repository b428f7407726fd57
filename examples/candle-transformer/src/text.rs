use crate::random::Random;
use candle_core::{Device, Result, Tensor};

/// A source of texts that count up from a random number: `417 418 419 `, and so on.
#[derive(Debug)]
pub(crate) struct Text(Random);

impl Text {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// Returns an endless iterator over batches of bytes and the bytes that follow them.
    pub(crate) fn batches(
        mut self,
        size: usize,
        length: usize,
        device: &Device,
    ) -> impl Iterator<Item = Result<(Tensor, Tensor)>> {
        std::iter::repeat_with(move || {
            let lines: Vec<_> = (0..size).map(|_| self.line(length + 1)).collect();
            let bytes = |from: usize| lines.iter().flat_map(move |line| &line[from..from + length]);
            let tensor = |from| Tensor::from_iter(bytes(from).copied().map(u32::from), device)?.reshape((size, length));
            Ok((tensor(0)?, tensor(1)?))
        })
    }

    /// Returns a text of this many bytes.
    fn line(&mut self, length: usize) -> Vec<u8> {
        let start = 100 + self.0.below(800);
        let mut line: Vec<u8> = (start..)
            .take(length.div_ceil(4))
            .flat_map(|number| format!("{:03} ", number % 1000).into_bytes())
            .collect();
        line.truncate(length);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn a_line_counts() {
        let line = String::from_utf8(Text::new(1).line(14)).unwrap();
        let numbers: Vec<u32> = line[..12].split_whitespace().map(|number| number.parse().unwrap()).collect();
        assert_eq!(line.len(), 14);
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{line}");
    }
}
