//! MLPs that wait, copy and launch more than they need to.

use crate::{
    cases::{BATCH_OF_LAUNCHES, Burn, CLASSES, READ_EVERY, Result, Setup, Sizes, Step, forever},
    loader::{Batch, Loader},
    models::{Mlp, Trainer, batches, hits},
};
use burn::tensor::{Int, Tensor, TensorData};
use tracing::info_span;
use trainings_runner::{Framework, Random, Variant, workers};

/// An MLP that reads loss and accuracy in each step, or sums them up on the GPU.
pub(crate) fn metrics(setup: &Setup, variant: Variant) -> Result<Step> {
    let device = setup.device.clone();
    let mut trainer = Trainer::new(Mlp::new(setup.width(), 4, CLASSES, &device), &device);
    let mut batches = batches([setup.batch(), setup.width()], CLASSES, &device);
    let (mut loss_sum, mut right) = (Tensor::<1>::zeros([1], &device), Tensor::<1, Int>::zeros([1], &device));
    let (mut read, mut step) = (Vec::new(), 0);
    Ok(forever(move || {
        let (x, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        step += 1;
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits.clone(), labels.clone());
        info_span!("metrics").in_scope(|| {
            let hits = hits(logits, labels);
            if variant == Variant::Fault {
                read.push((loss.clone().into_scalar::<f32>(), hits.into_scalar::<i32>()));
                return;
            }
            loss_sum = loss_sum.clone() + loss.clone().detach();
            right = right.clone() + hits;
            if step % READ_EVERY == 0 {
                read.push((loss_sum.clone().into_scalar::<f32>(), right.clone().into_scalar::<i32>()));
            }
        });
        trainer.learn(&loss);
    }))
}

/// An MLP whose images are augmented in the loop, or by workers.
pub(crate) fn augmented(setup: &Setup, variant: Variant) -> Result<Step> {
    // With the time of the augmentations as calibrated, two workers would do if they were never interrupted.
    const WORKERS: u64 = 4;
    let device = setup.device.clone();
    let mut trainer = Trainer::new(Mlp::new(setup.width(), 4, CLASSES, &device), &device);
    let augmentations = setup.amount;
    let mut load: Box<dyn FnMut() -> Batch> = if variant == Variant::Fault {
        let mut loader = loader(setup, 1);
        Box::new(move || loader.batch(augmentations))
    } else {
        let load = |seed: u64| {
            let mut loader = loader(setup, seed);
            move || loader.batch(augmentations)
        };
        Box::new(workers::spawn((0..WORKERS).map(load).collect()))
    };
    Ok(forever(move || {
        let _step = info_span!("train_step").entered();
        let (x, labels) = info_span!("next_batch").in_scope(|| load().upload(&device));
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits, labels);
        trainer.learn(&loss);
    }))
}

fn loader(setup: &Setup, seed: u64) -> Loader {
    // The pixels of an image are the inputs of a layer.
    Loader::new(seed, setup.batch(), setup.width().isqrt(), CLASSES)
}

/// Returns the number of augmentations that take one and a half times as long as a step with data that is ready.
pub(crate) fn augmentations(setup: &Setup) -> Result<usize> {
    let device = setup.device.clone();
    let mut trainer = Trainer::new(Mlp::new(setup.width(), 4, CLASSES, &device), &device);
    let mut loader = loader(setup, 0);
    let batch = loader.batch(1);
    let mut step = forever(move || {
        let (x, labels) = batch.clone().upload(&device);
        let loss = trainer.loss(trainer.model().forward(x), labels);
        trainer.learn(&loss);
    });
    trainings_runner::mean(setup, &mut step, Burn::WARM_UP)?;
    let step_us = trainings_runner::mean(setup, &mut step, 30)?;
    let start = std::time::Instant::now();
    (0..4).for_each(|_| drop(loader.batch(1)));
    let augmentation_us = start.elapsed().as_secs_f64() * 1e6 / 4.0;
    Ok((1.5 * step_us / augmentation_us).round().max(1.0) as usize)
}

/// A classifier with many classes that copies its logits to the host, to see how it does on some of the rows.
pub(crate) fn logits(setup: &Setup, variant: Variant) -> Result<Step> {
    // The rows that are looked at: few, so that the copy is the fault and not the work of the host after it.
    const SAMPLE: usize = 32;
    // The logits have 32 MiB.
    let (classes, device) = (setup.size(2048, 32), setup.device.clone());
    let mut trainer = Trainer::new(Mlp::new(setup.width(), 2, classes, &device), &device);
    let mut batches = batches([setup.batch(), setup.width()], classes, &device);
    let mut right = Tensor::<1, Int>::zeros([1], &device);
    let (mut read, mut step) = (Vec::new(), 0);
    Ok(forever(move || {
        let (x, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        step += 1;
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits.clone(), labels.clone());
        trainer.learn(&loss);
        let _metrics = info_span!("metrics").entered();
        if variant == Variant::Fault {
            let data = logits.into_data();
            let values = data.as_slice::<f32>().expect("f32");
            let highest = |row: &[f32]| row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            read.push(values.chunks(classes).take(SAMPLE).map(highest).sum::<f32>());
            return;
        }
        right = right.clone() + hits(logits, labels);
        if step % READ_EVERY == 0 {
            read.push(right.clone().into_scalar::<i32>() as f32);
        }
    }))
}

/// An MLP that gets the features of each item from a table, which does not change.
pub(crate) fn same_upload(setup: &Setup, variant: Variant) -> Result<Step> {
    // The table has 64 MiB.
    let (items, width, batch) = (setup.size(16 << 10, 32), setup.width(), setup.batch());
    let device = setup.device.clone();
    let mut random = Random::new(3);
    let table: Vec<f32> = (0..items * width).map(|_| random.uniform() - 0.5).collect();
    let table = TensorData::new(table, [items, width]);
    let numbers = |random: &mut Random, end: usize| {
        let numbers: Vec<i32> = (0..batch).map(|_| random.below(end) as i32).collect();
        TensorData::new(numbers, [batch])
    };
    let rows: Vec<_> = (0..16).map(|_| (numbers(&mut random, items), numbers(&mut random, CLASSES))).collect();
    let uploaded = (variant == Variant::Fixed).then(|| Tensor::<2>::from_data(table.clone(), &device));
    let mut trainer = Trainer::new(Mlp::new(width, 3, CLASSES, &device), &device);
    let mut step = 0;
    Ok(forever(move || {
        let _step = info_span!("train_step").entered();
        step += 1;
        let (ids, labels) = info_span!("data").in_scope(|| {
            let (ids, labels) = rows[step % rows.len()].clone();
            (Tensor::<1, Int>::from_data(ids, &device), Tensor::<1, Int>::from_data(labels, &device))
        });
        let upload = || uploaded.clone().unwrap_or_else(|| Tensor::from_data(table.clone(), &device));
        let table = info_span!("features").in_scope(upload);
        let x = info_span!("lookup").in_scope(|| table.select(0, ids));
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits, labels);
        trainer.learn(&loss);
    }))
}

/// A small MLP, of which the host launches kernels for longer than the GPU computes.
pub(crate) fn small_batches(setup: &Setup, variant: Variant) -> Result<Step> {
    let width = setup.size(512, 16);
    let mut trainer = Trainer::new(Mlp::new(width, 4, CLASSES, &setup.device), &setup.device);
    let mut batches = batches([setup.size(BATCH_OF_LAUNCHES[variant as usize], 4), width], CLASSES, &setup.device);
    Ok(forever(move || {
        let (x, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits, labels);
        trainer.learn(&loss);
    }))
}
