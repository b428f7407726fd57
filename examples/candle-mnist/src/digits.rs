//! Images of the digits 0 to 9 with MNIST's size of 28 × 28. They have the strokes of a pocket calculator, with random
//! position, slant and thickness, and with noise.

use candle_core::{Device, Result, Tensor};

const SIZE: usize = 28;

/// The ends (x, y) of the strokes: top, upper left, upper right, middle, lower left, lower right, bottom.
const STROKES: [[(f32, f32); 2]; 7] = [
    [(0.0, 0.0), (1.0, 0.0)],
    [(0.0, 0.0), (0.0, 1.0)],
    [(1.0, 0.0), (1.0, 1.0)],
    [(0.0, 1.0), (1.0, 1.0)],
    [(0.0, 1.0), (0.0, 2.0)],
    [(1.0, 1.0), (1.0, 2.0)],
    [(0.0, 2.0), (1.0, 2.0)],
];

/// The strokes of each digit, one bit for each.
const DIGITS: [u8; 10] =
    [0b1110111, 0b0100100, 0b1011101, 0b1101101, 0b0101110, 0b1101011, 0b1111011, 0b0100101, 0b1111111, 0b1101111];

/// A source of random digits, the same ones for the same seed.
pub(crate) struct Digits {
    state: u64,
}

impl Digits {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    /// Returns an endless iterator over batches on a device.
    pub(crate) fn batches(mut self, size: usize, device: Device) -> impl Iterator<Item = Result<(Tensor, Tensor)>> {
        std::iter::repeat_with(move || self.batch(size, &device))
    }

    /// Returns images and their labels.
    pub(crate) fn batch(&mut self, size: usize, device: &Device) -> Result<(Tensor, Tensor)> {
        let labels: Vec<u32> = (0..size).map(|_| (self.random() * 10.0) as u32).collect();
        let images: Vec<f32> = labels.iter().flat_map(|&label| self.draw(label as usize)).collect();
        Ok((Tensor::from_vec(images, (size, 1, SIZE, SIZE), device)?, Tensor::from_vec(labels, size, device)?))
    }

    fn draw(&mut self, digit: usize) -> Vec<f32> {
        let (left, top) = (7.0 + 6.0 * self.random(), 3.0 + 5.0 * self.random());
        let (wide, high) = (6.0 + 3.0 * self.random(), 7.0 + 2.0 * self.random());
        let (slant, thick) = (0.3 * (self.random() - 0.5), 1.0 + self.random());
        let position = |(x, y): (f32, f32)| (left + wide * x - slant * high * y, top + high * y);
        let strokes = STROKES.iter().enumerate().filter(|(stroke, _)| DIGITS[digit] >> stroke & 1 == 1);
        let strokes: Vec<_> = strokes.map(|(_, ends)| ends.map(position)).collect();
        let mut image = Vec::with_capacity(SIZE * SIZE);
        for y in 0..SIZE {
            for x in 0..SIZE {
                let far =
                    strokes.iter().map(|stroke| distance((x as f32, y as f32), *stroke)).fold(f32::INFINITY, f32::min);
                image.push((1.5 + thick / 2.0 - far).clamp(0.0, 1.0) + 0.3 * (self.random() - 0.5));
            }
        }
        image
    }

    /// Returns a number from 0 to 1 (xorshift).
    fn random(&mut self) -> f32 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 40) as f32 / (1_u64 << 24) as f32
    }
}

/// Returns the distance from a point to a stroke.
fn distance((x, y): (f32, f32), [(x1, y1), (x2, y2)]: [(f32, f32); 2]) -> f32 {
    let (dx, dy) = (x2 - x1, y2 - y1);
    let along = (((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy)).clamp(0.0, 1.0);
    (x - x1 - along * dx).hypot(y - y1 - along * dy)
}
