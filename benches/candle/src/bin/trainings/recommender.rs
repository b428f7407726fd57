//! A recommender that learns from items that users chose, and from items that they did not.

use crate::{
    calibration::repetitions,
    case::{Setup, Step},
    models::{Mlp, sgd, trained},
};
use candle_core::{Result, Tensor};
use candle_nn::{Module, Optimizer};
use std::collections::HashSet;
use tracing::info_span;
use trainings_runner::{Random, Variant, workers};

/// The values of a user or an item, the items that a user chose, and the others that are drawn for each of these.
const FEATURES: usize = 128;
const CHOSEN: usize = 32;
const NEGATIVES: usize = 4;

/// Returns the number of users, of items, and of users of a batch.
fn counts(setup: &Setup) -> [usize; 3] {
    [setup.size(16 << 10, 16), setup.size(64 << 10, 256), setup.size(4096, 4)]
}

/// An MLP on pairs of users and items. Items that a user did not choose are drawn in the step, or on other threads.
pub(crate) fn sampled(setup: &Setup, variant: Variant) -> Result<Step> {
    const WORKERS: u64 = 4;
    let candidates = setup.amount;
    let mut draw: Box<dyn FnMut() -> Pairs> = if variant.is_fault() {
        let mut sampler = Sampler::new(setup, 1);
        Box::new(move || sampler.draw(candidates))
    } else {
        let draw = |seed: u64| {
            let mut sampler = Sampler::new(setup, seed);
            move || sampler.draw(candidates)
        };
        Box::new(workers::spawn((0..WORKERS).map(draw).collect()))
    };
    let mut train = model(setup)?;
    Ok(Box::new(move || info_span!("train_step").in_scope(|| train(&draw()))))
}

/// Returns the candidates for an item with which drawing takes longer than the GPU needs for a step.
pub(crate) fn candidates(setup: &Setup) -> Result<usize> {
    let (mut train, mut sampler) = (model(setup)?, Sampler::new(setup, 0));
    let pairs = sampler.draw(1);
    repetitions(setup, 1.6, Box::new(move || train(&pairs)), || drop(sampler.draw(1)))
}

/// Returns a step of the model. The values of users and items are not trained.
fn model(setup: &Setup) -> Result<impl FnMut(&Pairs) -> Result<()> + use<>> {
    let ([users, items, _], width, device) = (counts(setup), setup.size(2048, 8), setup.device.clone());
    let of_users = Tensor::randn(0_f32, 1.0, (users, FEATURES), &device)?;
    let of_items = Tensor::randn(0_f32, 1.0, (items, FEATURES), &device)?;
    let (variables, vb) = trained(&device);
    let model = Mlp::new(&[2 * FEATURES, width, width, 1], &vb)?;
    let mut optimizer = sgd(&variables)?;
    Ok(move |pairs: &Pairs| {
        let x = info_span!("lookup").in_scope(|| {
            let users = Tensor::from_slice(&pairs.users, pairs.users.len(), &device)?;
            let items = Tensor::from_slice(&pairs.items, pairs.items.len(), &device)?;
            Tensor::cat(&[of_users.index_select(&users, 0)?, of_items.index_select(&items, 0)?], 1)
        })?;
        let scores = model.forward(&x)?.reshape(((), 1 + NEGATIVES))?;
        let loss = info_span!("loss").in_scope(|| {
            // The chosen item is to have the higher score.
            let difference = scores.narrow(1, 1, NEGATIVES)?.broadcast_sub(&scores.narrow(1, 0, 1)?)?;
            (difference.exp()? + 1.0)?.log()?.mean_all()
        })?;
        optimizer.backward_step(&loss)
    })
}

/// Users, each with an item: first the one that the user chose, then those that the user did not.
struct Pairs {
    users: Vec<u32>,
    items: Vec<u32>,
}

/// Draws items that a user did not choose, popular ones more often.
struct Sampler {
    random: Random,
    chosen: Vec<HashSet<u32>>,
    /// The sum of the popularity of each item and of all items before it.
    popularity: Vec<f32>,
    batch: usize,
}

impl Sampler {
    fn new(setup: &Setup, seed: u64) -> Self {
        let [users, items, batch] = counts(setup);
        let mut random = Random::new(seed + 51);
        let chosen = (0..users).map(|_| (0..CHOSEN).map(|_| random.below(items) as u32).collect()).collect();
        let popularity = (0..items).scan(0.0, |sum, rank| {
            *sum += ((rank + 1) as f32).powf(-0.75);
            Some(*sum)
        });
        Self { random, chosen, popularity: popularity.collect(), batch }
    }

    /// Draws a batch. A negative is the most popular of some candidates, as these are the hardest to tell.
    fn draw(&mut self, candidates: usize) -> Pairs {
        let size = self.batch * (1 + NEGATIVES);
        let mut pairs = Pairs { users: Vec::with_capacity(size), items: Vec::with_capacity(size) };
        for _ in 0..self.batch {
            let user = self.random.below(self.chosen.len());
            let index = self.random.below(self.chosen[user].len());
            let positive = self.chosen[user].iter().nth(index).copied().unwrap_or_default();
            pairs.items.push(positive);
            for _ in 0..NEGATIVES {
                let negative = (0..candidates).map(|_| self.negative(user)).min();
                pairs.items.push(negative.unwrap_or_default());
            }
            pairs.users.extend([user as u32; 1 + NEGATIVES]);
        }
        pairs
    }

    /// Draws items until there is one that the user did not choose.
    fn negative(&mut self, user: usize) -> u32 {
        let sum = self.popularity[self.popularity.len() - 1];
        loop {
            let drawn = self.random.uniform() * sum;
            let item = self.popularity.partition_point(|&sum| sum < drawn).min(self.popularity.len() - 1) as u32;
            if !self.chosen[user].contains(&item) {
                return item;
            }
        }
    }
}
