//! Trainings on images that are copied to the GPU in each step: as larger values, or in more pieces, than necessary.

use crate::{
    case::{Setup, Step},
    models::{Mlp, learn, next, sgd, trained},
    transformer::{Size, Transformer, Ways},
};
use candle_core::{DType, Result, Tensor, WithDType};
use candle_nn::Module;
use kernspan_candle::{data, nn};
use std::sync::Arc;
use tracing::info_span;
use trainings_runner::{Random, Variant, workers};

/// The patches of an image of 224 × 224 pixels, and the values of a patch of 16 × 16 pixels in three colours.
const PATCHES: usize = 196;
const PATCH: usize = 768;

/// A vision transformer whose images are bytes. They become numbers from -0.5 to 0.5 before they are copied, or on the
/// GPU.
pub(crate) fn pixels(setup: &Setup, variant: Variant) -> Result<Step> {
    const CLASSES: usize = 100;
    let size = Size { width: setup.size(512, 16), heads: setup.size(8, 2), blocks: setup.size(2, 1) };
    // A batch has 18 MiB as bytes, and 74 MiB as f32.
    let (batch, device) = (setup.size(128, 2), setup.device.clone());
    let (variables, vb) = trained(&device);
    let ways = Ways { fused_norm: false, fused_softmax: false, norm_queries: false, activation: Tensor::relu };
    let embed = nn::linear_no_bias(PATCH, size.width, vb.pp("embed"))?;
    let transformer = Transformer::new(size, ways, &vb)?;
    let head = nn::linear(size.width, CLASSES, vb.pp("head"))?;
    let mut optimizer = sgd(&variables)?;
    let labels: Vec<u32> = (0..batch).map(|row| (row % CLASSES) as u32).collect();
    let labels = Tensor::from_vec(labels, batch, &device)?;
    let mut load: Box<dyn FnMut() -> Result<Tensor>> = if variant.is_fault() {
        uploads(setup, batch, |byte| f32::from(byte) / 255.0 - 0.5)
    } else {
        let mut load = uploads(setup, batch, |byte| byte);
        Box::new(move || load()?.to_dtype(DType::F32)?.affine(1.0 / 255.0, -0.5))
    };
    Ok(Box::new(move || {
        info_span!("train_step").in_scope(|| {
            let images = load()?;
            let forward = || head.forward(&transformer.forward(&embed.forward(&images)?)?.mean(1)?);
            let logits = info_span!("forward").in_scope(forward)?;
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}

/// Returns a function that uploads the next batch. Workers pick its images and convert them, ahead of the loop.
fn uploads<T: WithDType>(setup: &Setup, batch: usize, convert: fn(u8) -> T) -> Box<dyn FnMut() -> Result<Tensor>> {
    const WORKERS: u64 = 5;
    const IMAGE: usize = PATCHES * PATCH;
    let (count, device) = (setup.size(512, 4), setup.device.clone());
    let mut random = Random::new(41);
    let stored: Arc<Vec<u8>> = Arc::new((0..count * IMAGE).map(|_| random.next() as u8).collect());
    let load = |seed: u64| {
        let (mut random, stored) = (Random::new(seed + 42), Arc::clone(&stored));
        // Batches that were made. Their memory is used again as soon as they are uploaded.
        let mut made: Vec<Arc<Vec<T>>> = Vec::new();
        move || {
            let _load = info_span!("load").entered();
            let free = made.iter().position(|batch| Arc::strong_count(batch) == 1);
            let mut values = free.map(|index| made.swap_remove(index)).unwrap_or_default();
            let images = Arc::get_mut(&mut values).expect("a batch that nobody else has");
            images.clear();
            for _ in 0..batch {
                let start = random.below(count) * IMAGE;
                images.extend(stored[start..start + IMAGE].iter().map(|&byte| convert(byte)));
            }
            made.push(Arc::clone(&values));
            values
        }
    };
    let mut batches = data(std::iter::repeat_with(workers::spawn((0..WORKERS).map(load).collect())));
    Box::new(move || {
        let images = next(&mut batches)?;
        info_span!("to_device").in_scope(|| Tensor::from_slice(&images, (batch, PATCHES, PATCH), &device))
    })
}

/// An MLP on small images. Each image and each label of a batch is copied to the GPU and stacked there, or all are
/// copied at once.
pub(crate) fn collated(setup: &Setup, variant: Variant) -> Result<Step> {
    const CLASSES: usize = 16;
    // Images of 32 × 32 pixels in three colours: 12 KiB.
    let (pixels, batch, width) = (setup.size(3072, 12), setup.size(128, 8), setup.size(4096, 8));
    let (count, device) = (setup.size(4096, 16), setup.device.clone());
    let mut random = Random::new(43);
    let mut image = || (0..pixels).map(|_| random.uniform() - 0.5).collect();
    let images: Vec<Vec<f32>> = (0..count).map(|_| image()).collect();
    let labels: Vec<u32> = (0..count).map(|_| random.below(CLASSES) as u32).collect();
    let (variables, vb) = trained(&device);
    let model = Mlp::new(&[pixels, width, width, width, width, width, width, CLASSES], &vb)?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = data(std::iter::repeat_with(move || {
        let numbers: Vec<usize> = (0..batch).map(|_| random.below(count)).collect();
        numbers
    }));
    Ok(Box::new(move || {
        let numbers = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let (x, labels) = info_span!("to_device").in_scope(|| {
                if variant.is_fault() {
                    let image = |&number: &usize| Tensor::from_slice(&images[number], pixels, &device);
                    let label = |&number: &usize| Tensor::new(labels[number], &device);
                    let x = numbers.iter().map(image).collect::<Result<Vec<_>>>()?;
                    let labels = numbers.iter().map(label).collect::<Result<Vec<_>>>()?;
                    return Ok::<_, candle_core::Error>((Tensor::stack(&x, 0)?, Tensor::stack(&labels, 0)?));
                }
                let x: Vec<f32> = numbers.iter().flat_map(|&number| &images[number]).copied().collect();
                let labels: Vec<u32> = numbers.iter().map(|&number| labels[number]).collect();
                Ok((Tensor::from_vec(x, (batch, pixels), &device)?, Tensor::from_vec(labels, batch, &device)?))
            })?;
            let logits = model.forward(&x)?;
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}
