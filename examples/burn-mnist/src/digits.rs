//! Images of the digits 0 to 9 with MNIST's size of 28 × 28. They have the strokes of a pocket calculator, with random
//! position, slant and thickness, and with noise.

use burn::{
    data::{
        dataloader::batcher::Batcher,
        dataset::{Dataset, DatasetError},
    },
    tensor::{Device, Int, Tensor, TensorData},
};

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

/// A dataset of digits that are drawn on request, the same ones for the same seed.
pub(crate) struct Digits {
    pub(crate) seed: u64,
    pub(crate) count: usize,
}

/// An image and its label.
#[derive(Clone, Debug)]
pub(crate) struct Digit {
    pixels: Vec<f32>,
    label: i64,
}

/// A batch of images and their labels on a device.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) images: Tensor<4>,
    pub(crate) labels: Tensor<1, Int>,
}

impl Dataset<Digit> for Digits {
    fn get(&self, index: usize) -> Result<Digit, DatasetError> {
        let mut random = Random::new(self.seed << 32 | index as u64);
        let label = (random.next() * 10.0) as usize;
        Ok(Digit { pixels: draw(label, &mut random), label: label as i64 })
    }

    fn len(&self) -> usize {
        self.count
    }
}

/// A batcher that stacks digits.
pub(crate) struct Stack;

impl Batcher<Digit, Batch> for Stack {
    fn batch(&self, digits: Vec<Digit>, device: &Device) -> Batch {
        let (count, labels) = (digits.len(), digits.iter().map(|digit| digit.label).collect());
        let pixels = digits.into_iter().flat_map(|digit| digit.pixels).collect();
        Batch {
            images: Tensor::from_data(TensorData::new::<f32, _>(pixels, [count, 1, SIZE, SIZE]), device),
            labels: Tensor::from_data(TensorData::new::<i64, _>(labels, [count]), device),
        }
    }
}

fn draw(digit: usize, random: &mut Random) -> Vec<f32> {
    let (left, top) = (7.0 + 6.0 * random.next(), 3.0 + 5.0 * random.next());
    let (wide, high) = (6.0 + 3.0 * random.next(), 7.0 + 2.0 * random.next());
    let (slant, thick) = (0.3 * (random.next() - 0.5), 1.0 + random.next());
    let position = |(x, y): (f32, f32)| (left + wide * x - slant * high * y, top + high * y);
    let strokes = STROKES.iter().enumerate().filter(|(stroke, _)| DIGITS[digit] >> stroke & 1 == 1);
    let strokes: Vec<_> = strokes.map(|(_, ends)| ends.map(position)).collect();
    let mut image = Vec::with_capacity(SIZE * SIZE);
    for y in 0..SIZE {
        for x in 0..SIZE {
            let far =
                strokes.iter().map(|stroke| distance((x as f32, y as f32), *stroke)).fold(f32::INFINITY, f32::min);
            image.push((1.5 + thick / 2.0 - far).clamp(0.0, 1.0) + 0.3 * (random.next() - 0.5));
        }
    }
    image
}

/// Returns the distance from a point to a stroke.
fn distance((x, y): (f32, f32), [(x1, y1), (x2, y2)]: [(f32, f32); 2]) -> f32 {
    let (dx, dy) = (x2 - x1, y2 - y1);
    let along = (((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy)).clamp(0.0, 1.0);
    (x - x1 - along * dx).hypot(y - y1 - along * dy)
}

/// A generator of numbers from 0 to 1 (splitmix64, so that consecutive seeds give unrelated numbers).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 40) as f32 / (1_u64 << 24) as f32
    }
}
