//! Images that are augmented on the host.

use burn::tensor::{Device, Int, Tensor, TensorData};

/// A generator of numbers that are random enough for data (Marsaglia's xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number between 0 and 1.
    pub(crate) fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 24) as f32
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Images with labels, on the host.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    images: TensorData,
    labels: TensorData,
}

impl Batch {
    pub(crate) fn upload(self, device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
        (Tensor::from_data(self.images, device), Tensor::from_data(self.labels, device))
    }
}

/// Loads square images in grey, and augments them.
#[derive(Debug)]
pub(crate) struct Loader {
    random: Random,
    images: Vec<u8>,
    batch: usize,
    side: usize,
    classes: usize,
}

impl Loader {
    pub(crate) fn new(seed: u64, batch: usize, side: usize, classes: usize) -> Self {
        let mut random = Random::new(seed + 1);
        let images = (0..batch * side * side).map(|_| random.next() as u8).collect();
        Self { random, images, batch, side, classes }
    }

    /// Augments images by shifts, flips and changes of brightness and contrast, one after the other.
    #[tracing::instrument(name = "augment", skip_all)]
    pub(crate) fn batch(&mut self, augmentations: usize) -> Batch {
        let side = self.side;
        let mut images: Vec<f32> = self.images.iter().map(|&value| f32::from(value) / 255.0 - 0.5).collect();
        let mut row = vec![0.0; side];
        for _ in 0..augmentations {
            for image in images.chunks_mut(side * side) {
                let (shift, flips) = (self.random.below(5), self.random.below(2) == 0);
                let (contrast, brightness) = (0.8 + 0.4 * self.random.uniform(), 0.1 * self.random.uniform());
                for line in image.chunks_mut(side) {
                    for (column, value) in row.iter_mut().enumerate() {
                        let column = (column + shift) % side;
                        let column = if flips { side - 1 - column } else { column };
                        *value = (line[column] * contrast + brightness).clamp(-2.0, 2.0);
                    }
                    line.copy_from_slice(&row);
                }
            }
        }
        let labels: Vec<i32> = (0..self.batch).map(|_| self.random.below(self.classes) as i32).collect();
        Batch {
            images: TensorData::new(images, [self.batch, side * side]),
            labels: TensorData::new(labels, [self.batch]),
        }
    }
}
