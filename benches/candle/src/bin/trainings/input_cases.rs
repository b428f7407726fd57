//! Trainings whose host has work of its own: videos that are decoded, environments that are simulated.

use crate::{
    case::{Setup, Step},
    models::{Cnn, Mlp, adamw, frozen, learn, next, sgd, trained},
};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Module, Optimizer, loss};
use kernspan_candle::data;
use std::time::Instant;
use tracing::{info_span, instrument};
use trainings_runner::{Random, Variant, workers};

/// The width and height of a frame, and the clips of a batch.
const PIXELS: usize = 32;
const CLIPS: usize = 256;

/// A CNN on the mean of a clip's frames. Clips are decoded in the loop, or by workers.
pub(crate) fn decoded(setup: &Setup, variant: Variant) -> Result<Step> {
    // With as many frames as calibrated, two workers would do if they were never interrupted.
    const WORKERS: u64 = 4;
    let (device, clips, frames) = (setup.device.clone(), setup.size(CLIPS, 2), setup.amount);
    let mut load: Box<dyn FnMut() -> Clips> = if variant.is_fault() {
        let mut decoder = Decoder::new(1, clips, frames);
        Box::new(move || decoder.batch())
    } else {
        let load = |seed: u64| {
            let mut decoder = Decoder::new(seed, clips, frames);
            move || decoder.batch()
        };
        Box::new(workers::spawn((0..WORKERS).map(load).collect()))
    };
    let mut batches = data(std::iter::repeat_with(move || load().upload(&device)));
    let mut train = cnn(setup)?;
    Ok(Box::new(move || {
        let (images, labels) = next(&mut batches)??;
        info_span!("train_step").in_scope(|| train(&images, &labels))
    }))
}

/// Returns the frames of a clip that take one and a quarter times as long to decode as the GPU takes for a batch.
pub(crate) fn frames(setup: &Setup) -> Result<usize> {
    const FRAMES: usize = 4;
    let (mut train, mut decoder) = (cnn(setup)?, Decoder::new(0, CLIPS, FRAMES));
    let (images, labels) = decoder.batch().upload(&setup.device)?;
    let mut step: Step = Box::new(move || train(&images, &labels));
    trainings_runner::mean(setup, &mut step, 20)?;
    let step_us = trainings_runner::mean(setup, &mut step, 20)?;
    let start = Instant::now();
    (0..4).for_each(|_| drop(decoder.batch()));
    let frame_us = start.elapsed().as_secs_f64() * 1e6 / (4 * FRAMES) as f64;
    Ok((1.25 * step_us / frame_us).round().max(1.0) as usize)
}

type Train = Box<dyn FnMut(&Tensor, &Tensor) -> Result<()>>;

fn cnn(setup: &Setup) -> Result<Train> {
    let (variables, vb) = trained(&setup.device);
    let model = Cnn::new(PIXELS, &[32, 64, 64][..setup.size(3, 1)], &vb)?;
    let mut optimizer = sgd(&variables)?;
    Ok(Box::new(move |images, labels| learn(&mut optimizer, &model.forward(images)?, labels)))
}

/// The mean frames of clips, with labels, on the host.
struct Clips {
    means: Vec<f32>,
    labels: Vec<u32>,
}

impl Clips {
    fn upload(self, device: &Device) -> Result<(Tensor, Tensor)> {
        let count = self.labels.len();
        let means = Tensor::from_vec(self.means, (count, 3, PIXELS, PIXELS), device)?;
        Ok((means, Tensor::from_vec(self.labels, count, device)?))
    }
}

/// Decodes frames. A value is the difference to the one before it, of as few bytes as possible.
struct Decoder {
    random: Random,
    encoded: Vec<Vec<u8>>,
    frames: usize,
}

impl Decoder {
    fn new(seed: u64, clips: usize, frames: usize) -> Self {
        let mut random = Random::new(seed + 21);
        let clip = |_| {
            let values = (0..frames * 3 * PIXELS * PIXELS).scan(128_i16, |value, _| {
                *value = (*value + random.below(81) as i16 - 40).clamp(0, 255);
                Some(*value)
            });
            encode(values)
        };
        let encoded = (0..clips).map(clip).collect();
        Self { random, encoded, frames }
    }

    #[instrument(name = "decode_clips", skip_all)]
    fn batch(&mut self) -> Clips {
        const FRAME: usize = 3 * PIXELS * PIXELS;
        let mut means = vec![0.0; self.encoded.len() * FRAME];
        let scale = (255.0 * self.frames as f32).recip();
        for (clip, mean) in self.encoded.iter().zip(means.chunks_mut(FRAME)) {
            for (index, value) in decode(clip).enumerate() {
                mean[index % FRAME] += f32::from(value) * scale;
            }
        }
        let labels = self.encoded.iter().map(|_| self.random.below(Cnn::CLASSES) as u32).collect();
        Clips { means, labels }
    }
}

/// Writes differences as varints: seven bits in each byte, the eighth says that another follows.
fn encode(values: impl Iterator<Item = i16>) -> Vec<u8> {
    let (mut bytes, mut last) = (Vec::new(), 0);
    for value in values {
        let difference = value - last;
        let mut rest = ((difference << 1) ^ (difference >> 15)) as u16;
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        last = value;
    }
    bytes
}

fn decode(bytes: &[u8]) -> impl Iterator<Item = i16> + '_ {
    let (mut bytes, mut last) = (bytes.iter(), 0_i16);
    std::iter::from_fn(move || {
        let (mut number, mut shift) = (0_u16, 0);
        loop {
            let byte = *bytes.next()?;
            number |= u16::from(byte & 0x7F) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        last += (number >> 1) as i16 ^ -((number & 1) as i16);
        Some(last)
    })
}

/// The pendulums that are simulated at once, and the values of a transition: state, action, reward, next state.
const PENDULUMS: usize = 256;
const TRANSITION: usize = 8;

/// Q-learning that simulates pendulums in the loop, or on another thread.
pub(crate) fn simulated(setup: &Setup, variant: Variant) -> Result<Step> {
    let substeps = setup.amount;
    let mut simulate: Box<dyn FnMut() -> Vec<f32>> = if variant.is_fault() {
        let mut pendulums = Pendulums::new(1);
        Box::new(move || pendulums.step(substeps))
    } else {
        let mut pendulums = Pendulums::new(1);
        Box::new(workers::spawn(vec![move || pendulums.step(substeps)]))
    };
    let mut train = q_learning(setup)?;
    Ok(Box::new(move || {
        info_span!("train_step").in_scope(|| {
            let transitions = simulate();
            train(&transitions)
        })
    }))
}

/// Returns the substeps of a simulation that take nine tenths of the rest of a step: a thread can keep up with that.
pub(crate) fn substeps(setup: &Setup) -> Result<usize> {
    const SUBSTEPS: usize = 16;
    let (mut train, mut pendulums) = (q_learning(setup)?, Pendulums::new(0));
    let transitions = pendulums.step(SUBSTEPS);
    let mut step: Step = Box::new(move || train(&transitions));
    trainings_runner::mean(setup, &mut step, 20)?;
    let step_us = trainings_runner::mean(setup, &mut step, 50)?;
    let start = Instant::now();
    (0..16).for_each(|_| drop(pendulums.step(SUBSTEPS)));
    let substep_us = start.elapsed().as_secs_f64() * 1e6 / (16 * SUBSTEPS) as f64;
    Ok((0.9 * step_us / substep_us).round().max(1.0) as usize)
}

/// Returns a step of Q-learning, which gets new transitions.
fn q_learning(setup: &Setup) -> Result<impl FnMut(&[f32]) -> Result<()> + use<>> {
    const ACTIONS: usize = 16;
    let (width, batch, device) = (setup.size(1024, 8), setup.size(8192, 4), setup.device.clone());
    let capacity = setup.size(256, 2) * PENDULUMS;
    let replay = Tensor::zeros((capacity, TRANSITION), DType::F32, &device)?;
    let (variables, vb) = trained(&device);
    let online = Mlp::new(&[3, width, width, width, ACTIONS], &vb)?;
    let target = Mlp::new(&[3, width, width, width, ACTIONS], &frozen(DType::F32, &device))?;
    let mut optimizer = adamw(&variables)?;
    let (mut random, mut offset) = (Random::new(22), 0);
    Ok(move |transitions: &[f32]| {
        info_span!("remember").in_scope(|| {
            let new = Tensor::from_slice(transitions, (PENDULUMS, TRANSITION), &device)?;
            replay.slice_set(&new, 0, offset)
        })?;
        offset = (offset + PENDULUMS) % capacity;
        let sample = info_span!("data").in_scope(|| {
            let ids: Vec<u32> = (0..batch).map(|_| random.below(capacity) as u32).collect();
            replay.index_select(&Tensor::from_vec(ids, batch, &device)?, 0)
        })?;
        let part = |start, length| sample.narrow(1, start, length)?.contiguous();
        let highest = info_span!("target").in_scope(|| target.forward(&part(5, 3)?)?.max_keepdim(1))?;
        let wanted = (part(4, 1)? + (highest * 0.99)?)?;
        let values = online.forward(&part(0, 3)?)?.gather(&part(3, 1)?.to_dtype(DType::U32)?, 1)?;
        let loss = info_span!("loss").in_scope(|| loss::mse(&values, &wanted.detach()))?;
        optimizer.backward_step(&loss)
    })
}

/// Pendulums that random torques swing.
struct Pendulums {
    random: Random,
    /// Angles and angular velocities.
    states: Vec<[f32; 2]>,
}

impl Pendulums {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed + 23);
        let states = (0..PENDULUMS).map(|_| [random.uniform() * 6.0, random.uniform() - 0.5]).collect();
        Self { random, states }
    }

    /// Simulates a twentieth of a second, and returns transitions.
    #[instrument(name = "simulate", skip_all)]
    fn step(&mut self, substeps: usize) -> Vec<f32> {
        let seconds = 0.05 / substeps as f32;
        let mut transitions = Vec::with_capacity(PENDULUMS * TRANSITION);
        for state in &mut self.states {
            let action = self.random.below(16);
            let torque = (action as f32 - 7.5) / 4.0;
            transitions.extend([state[0].cos(), state[0].sin(), state[1], action as f32]);
            transitions.push(-(state[0].cos() - 1.0).powi(2) - 0.1 * state[1].powi(2));
            for _ in 0..substeps {
                let acceleration = 15.0 * state[0].sin() + 3.0 * torque;
                state[1] = (state[1] + acceleration * seconds).clamp(-8.0, 8.0);
                state[0] = (state[0] + state[1] * seconds) % std::f32::consts::TAU;
            }
            transitions.extend([state[0].cos(), state[0].sin(), state[1]]);
        }
        transitions
    }
}
