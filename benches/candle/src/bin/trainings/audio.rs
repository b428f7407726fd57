//! A classifier of sounds, whose spectra are computed on the host.

use crate::{
    calibration::repetitions,
    case::{Setup, Step},
    models::{learn, next, sgd, trained},
    transformer::{Size, Transformer, Ways},
};
use candle_core::{Device, Result, Tensor};
use candle_nn::Module;
use kernspan_candle::{data, nn};
use std::f32::consts::TAU;
use tracing::{info_span, instrument};
use trainings_runner::{Random, Variant, workers};

const CLASSES: usize = 32;
/// The samples of a window, the frequencies of its spectrum, and the samples between two windows.
const WINDOW: usize = 64;
const BANDS: usize = WINDOW / 2;
const HOP: usize = 16;

/// Returns the clips of a batch and the frames of a clip.
fn shape(setup: &Setup) -> [usize; 2] {
    [setup.size(64, 2), setup.size(64, 4)]
}

/// A transformer on spectra, which one thread computes ahead of the loop, or several do. One is too slow.
pub(crate) fn spectra(setup: &Setup, variant: Variant) -> Result<Step> {
    let (device, windows) = (setup.device.clone(), setup.amount);
    let threads = if variant.is_fault() { 1 } else { 5 };
    let load = |seed: u64| {
        let mut recorder = Recorder::new(setup, seed);
        move || recorder.batch(windows)
    };
    let mut load = workers::spawn((0..threads).map(load).collect());
    let mut batches = data(std::iter::repeat_with(move || load().upload(&device)));
    let mut train = classifier(setup)?;
    Ok(Box::new(move || {
        let (spectra, labels) = next(&mut batches)??;
        info_span!("train_step").in_scope(|| train(&spectra, &labels))
    }))
}

/// Returns the windows per frame with which one thread takes almost twice as long for a batch as the GPU.
pub(crate) fn windows(setup: &Setup) -> Result<usize> {
    let (mut train, mut recorder) = (classifier(setup)?, Recorder::new(setup, 0));
    let (spectra, labels) = recorder.batch(1).upload(&setup.device)?;
    let step: Step = Box::new(move || train(&spectra, &labels));
    repetitions(setup, 1.8, step, || drop(recorder.batch(1)))
}

/// Returns a step of the classifier.
fn classifier(setup: &Setup) -> Result<impl FnMut(&Tensor, &Tensor) -> Result<()> + use<>> {
    let size = Size { width: setup.size(768, 16), heads: setup.size(12, 2), blocks: setup.size(4, 1) };
    let (variables, vb) = trained(&setup.device);
    let ways = Ways { fused_norm: false, fused_softmax: false, norm_queries: false, activation: Tensor::relu };
    let embed = nn::linear_no_bias(BANDS, size.width, vb.pp("embed"))?;
    let transformer = Transformer::new(size, ways, &vb)?;
    let head = nn::linear(size.width, CLASSES, vb.pp("head"))?;
    let mut optimizer = sgd(&variables)?;
    Ok(move |spectra: &Tensor, labels: &Tensor| {
        let forward = || head.forward(&transformer.forward(&embed.forward(spectra)?)?.mean(1)?);
        let logits = info_span!("forward").in_scope(forward)?;
        learn(&mut optimizer, &logits, labels)
    })
}

/// Spectra with labels, on the host.
struct Spectra {
    powers: Vec<f32>,
    labels: Vec<u32>,
}

impl Spectra {
    fn upload(self, device: &Device) -> Result<(Tensor, Tensor)> {
        let clips = self.labels.len();
        let powers = Tensor::from_vec(self.powers, (clips, (), BANDS), device)?;
        Ok((powers, Tensor::from_vec(self.labels, clips, device)?))
    }
}

/// Clips of sound, and what their spectra are computed with.
struct Recorder {
    random: Random,
    clips: Vec<Vec<f32>>,
    frames: usize,
    /// The window's weights, and the cosines and sines of a whole turn.
    hann: Vec<f32>,
    turn: Vec<[f32; 2]>,
}

impl Recorder {
    fn new(setup: &Setup, seed: u64) -> Self {
        let [clips, frames] = shape(setup);
        let mut random = Random::new(seed + 31);
        let mut clip = || (0..frames * WINDOW).map(|_| random.uniform() - 0.5).collect();
        let clips = (0..clips).map(|_| clip()).collect();
        let angle = |index: usize| TAU * index as f32 / WINDOW as f32;
        Self {
            random,
            clips,
            frames,
            hann: (0..WINDOW).map(|index| 0.5 - 0.5 * angle(index).cos()).collect(),
            turn: (0..WINDOW).map(|index| [angle(index).cos(), -angle(index).sin()]).collect(),
        }
    }

    /// Computes the spectrum of each frame: the logarithm of the mean power of some windows that overlap.
    #[instrument(name = "spectrogram", skip_all)]
    fn batch(&mut self, windows: usize) -> Spectra {
        let mut powers = Vec::with_capacity(self.clips.len() * self.frames * BANDS);
        for clip in &self.clips {
            for frame in 0..self.frames {
                let mut sums = [0.0; BANDS];
                for window in 0..windows {
                    let spectrum = self.transform(clip, frame * WINDOW + window * HOP);
                    sums.iter_mut().zip(&spectrum).for_each(|(sum, [re, im])| *sum += re * re + im * im);
                }
                powers.extend(sums.map(|sum| (sum / windows as f32 + 1e-6).ln()));
            }
        }
        let labels = self.clips.iter().map(|_| self.random.below(CLASSES) as u32).collect();
        Spectra { powers, labels }
    }

    /// Returns the Fourier transform of the window that begins at a sample.
    fn transform(&self, clip: &[f32], start: usize) -> [[f32; 2]; WINDOW] {
        const BITS: u32 = WINDOW.ilog2();
        let mut values = [[0.0; 2]; WINDOW];
        for (index, weight) in self.hann.iter().enumerate() {
            let reversed = index.reverse_bits() >> (usize::BITS - BITS);
            values[reversed] = [clip[(start + index) % clip.len()] * weight, 0.0];
        }
        for bit in 0..BITS {
            let half = 1 << bit;
            for block in values.chunks_mut(2 * half) {
                let (low, high) = block.split_at_mut(half);
                for (index, (low, high)) in low.iter_mut().zip(high).enumerate() {
                    let [cos, sin] = self.turn[index * (WINDOW / (2 * half))];
                    let turned = [high[0] * cos - high[1] * sin, high[0] * sin + high[1] * cos];
                    *high = [low[0] - turned[0], low[1] - turned[1]];
                    *low = [low[0] + turned[0], low[1] + turned[1]];
                }
            }
        }
        values
    }
}
