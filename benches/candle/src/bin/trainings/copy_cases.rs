//! Trainings that copy more than they need to, or in pieces that are too small.

use crate::{
    case::{Setup, Step, Variant},
    models::{Mlp, Random, batches, hits, learn, next, sgd, trained},
};
use candle_core::{DType, Result, Tensor};
use candle_nn::{Module, Optimizer, loss};
use kernspan_candle::{data, nn};
use tracing::info_span;

/// The steps between two reads of a metric.
const READ_EVERY: usize = 50;

/// A recommender that gets the features of each item from a table, which does not change.
pub(crate) fn same_upload(setup: &Setup, variant: Variant) -> Result<Step> {
    const FEATURES: usize = 128;
    // The table has 64 MiB.
    let (items, batch) = (setup.size(128 << 10, 64), setup.size(8192, 8));
    let hidden = setup.size(4096, 8);
    let device = setup.device.clone();
    let mut random = Random::new(3);
    let table: Vec<f32> = (0..items * FEATURES).map(|_| random.uniform() - 0.5).collect();
    let ids: Vec<Vec<u32>> = (0..16).map(|_| (0..batch).map(|_| random.below(items) as u32).collect()).collect();
    let ratings: Vec<Vec<f32>> = (0..16).map(|_| (0..batch).map(|_| random.uniform()).collect()).collect();
    let upload = {
        let device = device.clone();
        move || Tensor::from_slice(&table, (items, FEATURES), &device)
    };
    let uploaded = if variant.is_fault() { None } else { Some(upload()?) };
    let (variables, vb) = trained(&device);
    let model = Mlp::new(&[FEATURES, hidden, hidden, 1], &vb)?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = data((0..).map(move |step: usize| -> Result<(Tensor, Tensor)> {
        let (ids, ratings) = (&ids[step % ids.len()][..], &ratings[step % ratings.len()][..]);
        Ok((Tensor::from_slice(ids, batch, &device)?, Tensor::from_slice(ratings, batch, &device)?))
    }));
    Ok(Box::new(move || {
        let (ids, ratings) = next(&mut batches)??;
        info_span!("train_step").in_scope(|| {
            let table = info_span!("features").in_scope(|| uploaded.clone().map_or_else(&upload, Ok))?;
            let rows = info_span!("lookup").in_scope(|| table.index_select(&ids, 0))?;
            let predicted = model.forward(&rows)?.squeeze(1)?;
            let loss = info_span!("loss").in_scope(|| loss::mse(&predicted, &ratings))?;
            optimizer.backward_step(&loss)
        })
    }))
}

/// A classifier with many classes that copies its logits to the host, to see how it does on some of the rows.
pub(crate) fn logits(setup: &Setup, variant: Variant) -> Result<Step> {
    // The logits have 24 MiB.
    const CLASSES: usize = 1536;
    // The rows that are looked at: few, so that the copy is the fault and not the work of the host after it.
    const SAMPLE: usize = 32;
    let (width, batch) = (setup.size(2048, 8), setup.size(4096, 4));
    let (variables, vb) = trained(&setup.device);
    let model = Mlp::new(&[width, width, width, CLASSES], &vb)?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[batch, width], CLASSES, &setup.device)?;
    let mut right = Tensor::zeros((), DType::F32, &setup.device)?;
    let (mut confidence, mut step) = (0.0, 0);
    Ok(Box::new(move || {
        let (x, labels) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let logits = model.forward(&x)?;
            learn(&mut optimizer, &logits, &labels)?;
            let _metrics = info_span!("metrics").entered();
            step += 1;
            if variant.is_fault() {
                let highest = |row: &Vec<f32>| row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                confidence += logits.to_vec2::<f32>()?.iter().take(SAMPLE).map(highest).sum::<f32>();
                return Ok(());
            }
            right = (&right + hits(&logits, &labels)?)?;
            if step % READ_EVERY == 0 {
                confidence += right.to_scalar::<f32>()?;
            }
            Ok(())
        })
    }))
}

/// A model of sets: it adds up the elements of a set, one after the other, and classifies the sum.
pub(crate) fn tiny_uploads(setup: &Setup, variant: Variant) -> Result<Step> {
    const FEATURES: usize = 32;
    const CLASSES: usize = 16;
    let (elements, batch, hidden) = (setup.size(96, 4), setup.size(16, 2), setup.size(256, 8));
    let device = setup.device.clone();
    let mut random = Random::new(4);
    let size = batch * FEATURES;
    let mut batch_of_sets = || (0..elements * size).map(|_| random.uniform()).collect::<Vec<f32>>();
    let sets: Vec<Vec<f32>> = (0..8).map(|_| batch_of_sets()).collect();
    let labels: Vec<u32> = (0..batch).map(|row| (row % CLASSES) as u32).collect();
    let labels = Tensor::from_vec(labels, batch, &device)?;
    let (variables, vb) = trained(&device);
    let (inner, head) =
        (nn::linear_no_bias(FEATURES, hidden, vb.pp("inner"))?, nn::linear_no_bias(hidden, CLASSES, vb.pp("head"))?);
    let mut optimizer = sgd(&variables)?;
    let mut step = 0;
    Ok(Box::new(move || {
        info_span!("train_step").in_scope(|| {
            step += 1;
            let sets = &sets[step % sets.len()];
            let sum = info_span!("sum_of_elements").in_scope(|| {
                let mut sum = Tensor::zeros((batch, FEATURES), DType::F32, &device)?;
                if variant.is_fault() {
                    for element in sets.chunks(size) {
                        sum = (&sum + Tensor::from_slice(element, (batch, FEATURES), &device)?)?;
                    }
                } else {
                    let all = Tensor::from_slice(sets, (elements, batch, FEATURES), &device)?;
                    for element in 0..elements {
                        sum = (&sum + all.get(element)?)?;
                    }
                }
                Ok::<_, candle_core::Error>(sum)
            })?;
            let forward = || head.forward(&inner.forward(&sum)?.relu()?);
            let logits = info_span!("forward").in_scope(forward)?;
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}
