//! Images that are augmented on the host.

use burn::tensor::{Device, Int, Tensor, TensorData};
use trainings_runner::Random;

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
