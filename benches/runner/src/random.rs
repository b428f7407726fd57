//! Random numbers for data.

/// A generator of numbers that are random enough for data (Marsaglia's xorshift).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Makes a generator, which returns the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns the next number.
    #[allow(clippy::should_implement_trait, reason = "an iterator's numbers would have to be unwrapped")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number between 0 and 1.
    pub fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 24) as f32
    }

    /// Returns a number below the end.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}
