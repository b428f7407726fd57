//! A model of molecules, which are described by a fingerprint: bits for the parts that a molecule has.

use crate::{
    calibration::repetitions,
    case::{Setup, Step},
    models::{Mlp, learn, next, sgd, trained},
};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::Module;
use kernspan_candle::data;
use tracing::info_span;
use trainings_runner::{Random, Variant};

const CLASSES: usize = 32;
/// The bits of a fingerprint, the atoms of a molecule, and the molecules that are stored.
const BITS: usize = 1024;
const ATOMS: usize = 24;
const STORED: usize = 8192;

/// An MLP on fingerprints, which are computed for each batch, or once for all molecules.
pub(crate) fn fingerprinted(setup: &Setup, variant: Variant) -> Result<Step> {
    let (device, batch, rounds) = (setup.device.clone(), setup.size(4096, 4), setup.amount);
    let molecules = molecules(setup.size(STORED, 16));
    let known: Option<Vec<[u8; BITS]>> =
        (!variant.is_fault()).then(|| molecules.iter().map(|molecule| molecule.fingerprint(rounds)).collect());
    let mut random = Random::new(92);
    let mut batches = data(std::iter::repeat_with(move || {
        let (mut bits, mut labels) = (Vec::with_capacity(batch * BITS), Vec::with_capacity(batch));
        for _ in 0..batch {
            let number = random.below(molecules.len());
            match &known {
                Some(known) => bits.extend_from_slice(&known[number]),
                None => bits.extend_from_slice(&molecules[number].fingerprint(rounds)),
            }
            labels.push((number % CLASSES) as u32);
        }
        upload(bits, labels, &device)
    }));
    let mut train = model(setup)?;
    Ok(Box::new(move || {
        let (bits, labels) = next(&mut batches)??;
        info_span!("train_step").in_scope(|| train(&bits, &labels))
    }))
}

/// Returns the rounds with which the fingerprints of a batch take longer than the rest of a step.
pub(crate) fn rounds(setup: &Setup) -> Result<usize> {
    const ROUNDS: usize = 4;
    let (batch, device, mut train) = (setup.size(4096, 4), setup.device.clone(), model(setup)?);
    let (molecules, labels) = (molecules(batch), (0..batch).map(|row| (row % CLASSES) as u32).collect());
    let compute =
        |rounds: usize| -> Vec<u8> { molecules.iter().flat_map(|molecule| molecule.fingerprint(rounds)).collect() };
    let (bits, labels) = upload(compute(1), labels, &device)?;
    let step: Step = Box::new(move || train(&bits, &labels));
    // What is computed has this many rounds already.
    Ok(ROUNDS * repetitions(setup, 1.2, step, || drop(compute(ROUNDS)))?)
}

fn upload(bits: Vec<u8>, labels: Vec<u32>, device: &Device) -> Result<(Tensor, Tensor)> {
    let count = labels.len();
    let bits = Tensor::from_vec(bits, (count, BITS), device)?;
    Ok((bits, Tensor::from_vec(labels, count, device)?))
}

/// Returns a step of the model.
fn model(setup: &Setup) -> Result<impl FnMut(&Tensor, &Tensor) -> Result<()> + use<>> {
    let width = setup.size(4096, 8);
    let (variables, vb) = trained(&setup.device);
    let model = Mlp::new(&[BITS, width, width, width, CLASSES], &vb)?;
    let mut optimizer = sgd(&variables)?;
    Ok(move |bits: &Tensor, labels: &Tensor| {
        let logits = model.forward(&bits.to_dtype(DType::F32)?)?;
        learn(&mut optimizer, &logits, labels)
    })
}

/// The kinds of a molecule's atoms, and the atoms that each is bound to.
struct Molecule {
    kinds: [u32; ATOMS],
    bonds: [[usize; 3]; ATOMS],
}

fn molecules(count: usize) -> Vec<Molecule> {
    let mut random = Random::new(91);
    let molecule = |_| Molecule {
        kinds: std::array::from_fn(|_| random.below(6) as u32),
        bonds: std::array::from_fn(|_| std::array::from_fn(|_| random.below(ATOMS))),
    };
    (0..count).map(molecule).collect()
}

impl Molecule {
    /// Returns the fingerprint of Morgan: each atom has a number, which in each round is mixed with those around it.
    fn fingerprint(&self, rounds: usize) -> [u8; BITS] {
        let (mut bits, mut numbers) = ([0; BITS], self.kinds);
        for _ in 0..rounds {
            numbers = std::array::from_fn(|atom| {
                let mut around = self.bonds[atom].map(|other| numbers[other]);
                around.sort_unstable();
                // FNV-1a, of whole numbers.
                let mix = |hash: u32, number: u32| (hash ^ number).wrapping_mul(0x0100_0193);
                around.into_iter().fold(mix(0x811C_9DC5, numbers[atom]), mix)
            });
            numbers.iter().for_each(|number| bits[(number >> 12) as usize % BITS] = 1);
        }
        bits
    }
}
