//! Trainings that copy more than they need to, or in pieces that are too small.

use crate::{
    case::{Setup, Step},
    models::{Mlp, batches, hits, learn, next, sgd, trained},
};
use candle_core::{DType, Result, Tensor};
use candle_nn::{Module, Optimizer, loss};
use kernspan_candle::{data, nn};
use tracing::info_span;
use trainings_runner::{Random, Variant};

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

/// An autoencoder that shows how some images look: all are copied to the host in each step, or only these, at times.
pub(crate) fn preview(setup: &Setup, variant: Variant) -> Result<Step> {
    // The images that are shown: few, so that the copy is the fault and not the work of the host after it.
    const SHOWN: usize = 8;
    // A batch has 48 MiB.
    let (pixels, batch) = (setup.size(3072, 16), setup.size(4096, 16));
    let (hidden, code) = (setup.size(4096, 8), setup.size(512, 4));
    let (variables, vb) = trained(&setup.device);
    let model = Mlp::new(&[pixels, hidden, code, hidden, pixels], &vb)?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[batch, pixels], 1, &setup.device)?;
    let (mut shown, mut step) = (Vec::new(), 0);
    Ok(Box::new(move || {
        let (images, _) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let decoded = model.forward(&images)?;
            let loss = info_span!("loss").in_scope(|| loss::mse(&decoded, &images))?;
            optimizer.backward_step(&loss)?;
            step += 1;
            let _preview = info_span!("preview").entered();
            let grey = |values: &[f32]| values.iter().map(|value| (value.clamp(0.0, 1.0) * 255.0) as u8).collect();
            if variant.is_fault() {
                shown = grey(&decoded.flatten_all()?.to_vec1::<f32>()?[..SHOWN * pixels]);
            } else if step % READ_EVERY == 0 {
                shown = grey(&decoded.narrow(0, 0, SHOWN)?.flatten_all()?.to_vec1::<f32>()?);
            }
            Ok(())
        })
    }))
}

/// An MLP on the columns of a table, as a data frame has them: each is uploaded alone, or all are at once.
pub(crate) fn columns(setup: &Setup, variant: Variant) -> Result<Step> {
    const CLASSES: usize = 64;
    const TABLES: usize = 8;
    let (columns, batch, hidden) = (setup.size(128, 12), setup.size(4096, 4), setup.size(1024, 8));
    let device = setup.device.clone();
    let mut random = Random::new(5);
    let mut column = || (0..batch).map(|_| random.uniform()).collect::<Vec<f32>>();
    let tables: Vec<Vec<Vec<f32>>> = (0..TABLES).map(|_| (0..columns).map(|_| column()).collect()).collect();
    let labels: Vec<u32> = (0..batch).map(|row| (row % CLASSES) as u32).collect();
    let labels = Tensor::from_vec(labels, batch, &device)?;
    let (variables, vb) = trained(&device);
    let model = Mlp::new(&[columns, hidden, hidden, CLASSES], &vb)?;
    let mut optimizer = sgd(&variables)?;
    let mut step = 0;
    Ok(Box::new(move || {
        info_span!("train_step").in_scope(|| {
            step += 1;
            let table = &tables[step % TABLES];
            let x = info_span!("features").in_scope(|| {
                let columns = if variant.is_fault() {
                    let upload = |column: &Vec<f32>| Tensor::from_slice(column, batch, &device);
                    table.iter().map(upload).collect::<Result<Vec<_>>>()?
                } else {
                    let all = Tensor::from_vec(table.concat(), (columns, batch), &device)?;
                    (0..columns).map(|index| all.get(index)).collect::<Result<Vec<_>>>()?
                };
                // The mean and the standard deviation of each column.
                let standardize = |column: &Tensor| column.affine(1.0 / 0.29, -0.5 / 0.29);
                let columns = columns.iter().map(standardize).collect::<Result<Vec<_>>>()?;
                Tensor::stack(&columns, 1)
            })?;
            let logits = model.forward(&x)?;
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}

/// A classifier of sounds that computes spectra by a product with sines and cosines: Candle has no Fourier transform.
/// The matrix is uploaded in each step, or once.
pub(crate) fn spectra(setup: &Setup, variant: Variant) -> Result<Step> {
    const CLASSES: usize = 64;
    // The matrix has 16 MiB.
    let (window, batch, sounds) = (setup.size(2048, 16), setup.size(4096, 4), setup.size(16 << 10, 16));
    let (hidden, device) = (setup.size(1024, 8), setup.device.clone());
    let wave = |index: usize| {
        let (time, frequency) = (index / window, index % window / 2);
        let phase = std::f64::consts::TAU * (time * frequency % window) as f64 / window as f64;
        (if index.is_multiple_of(2) { phase.cos() } else { phase.sin() }) as f32
    };
    let waves: Vec<f32> = (0..window * window).map(wave).collect();
    let upload = {
        let device = device.clone();
        move || Tensor::from_slice(&waves, (window, window), &device)
    };
    let uploaded = if variant.is_fault() { None } else { Some(upload()?) };
    let recorded = Tensor::randn(0_f32, 1.0, (sounds, window), &device)?;
    let mut random = Random::new(6);
    let mut numbers = |end: usize| (0..batch).map(|_| random.below(end) as u32).collect::<Vec<_>>();
    let numbered: Vec<_> = (0..16).map(|_| (numbers(sounds), numbers(CLASSES))).collect();
    let (variables, vb) = trained(&device);
    let model = Mlp::new(&[window / 2, hidden, hidden, CLASSES], &vb)?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = data((0..).map(move |step: usize| -> Result<(Tensor, Tensor)> {
        let (ids, labels) = &numbered[step % numbered.len()];
        Ok((Tensor::from_slice(ids, batch, &device)?, Tensor::from_slice(labels, batch, &device)?))
    }));
    Ok(Box::new(move || {
        let (ids, labels) = next(&mut batches)??;
        info_span!("train_step").in_scope(|| {
            let sounds = info_span!("lookup").in_scope(|| recorded.index_select(&ids, 0))?;
            let waves = info_span!("sines_and_cosines").in_scope(|| uploaded.clone().map_or_else(&upload, Ok))?;
            let powers = info_span!("spectrum").in_scope(|| {
                let spectrum = sounds.matmul(&waves)?.reshape((batch, window / 2, 2))?;
                (spectrum.sqr()?.sum(2)? + 1.0)?.log()
            })?;
            let logits = model.forward(&powers)?;
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}
