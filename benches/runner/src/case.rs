//! Trainings, and the framework that a program runs them with.

use kernspan::Profiler;
use std::{error::Error, fmt::Debug};

/// The framework that trainings are written in.
pub trait Framework: Sized + Debug + 'static {
    /// The name in the table and in names of files.
    const NAME: &'static str;
    /// The steps that run before anything is timed or recorded. In the first ones, kernels are loaded, compiled or
    /// tuned; later ones fill the GPU's memory pool and let it raise its clock. A GPU-bound training has hundreds of
    /// kernels queued by then, as it has in the middle of an epoch.
    const WARM_UP: usize;

    /// A device that tensors are on.
    type Device: Clone + Debug;
    /// Why a step failed.
    type Error: Into<Box<dyn Error>>;
    /// The connection between the framework and a profiler, which ends when it is dropped.
    type Attached;

    /// Returns the first GPU, or for tiny models any device.
    ///
    /// # Errors
    ///
    /// If there is no such device.
    fn device(tiny: bool) -> Result<Self::Device, Box<dyn Error>>;

    /// Waits until the device has done all of its work.
    ///
    /// # Errors
    ///
    /// If some of that work failed.
    fn synchronize(device: &Self::Device) -> Result<(), Self::Error>;

    /// Connects the framework and a profiler, before a model is made.
    ///
    /// # Errors
    ///
    /// If the profiler cannot observe the device.
    fn attach(profiler: &Profiler, device: &Self::Device) -> Result<Self::Attached, Box<dyn Error>>;

    /// Makes settings of the whole program, before steps of a variant run.
    fn configure(_case: &Case<Self>, _variant: Variant) {}
}

/// One step of a training. It holds the model, the optimizer and the data.
pub type Step<F> = Box<dyn FnMut() -> Result<(), <F as Framework>::Error>>;

/// Finds the size that makes a case meaningful on the machine at hand.
pub type Calibrate<F> = fn(&Setup<F>) -> Result<usize, <F as Framework>::Error>;

/// Makes a variant of a training.
pub type Make<F> = fn(&Setup<F>, Variant) -> Result<Step<F>, <F as Framework>::Error>;

/// A training with a planted fault.
#[derive(Debug)]
pub struct Case<F: Framework> {
    /// The name, unique in the program.
    pub name: &'static str,
    /// The model, in words.
    pub model: &'static str,
    /// The kind of the finding that names the fault.
    pub kind: &'static str,
    /// Whether nobody has looked at the case while rules were written.
    pub is_held_out: bool,
    /// The fix, in words.
    pub fix: &'static str,
    /// The samples of a step with the fault, and of a fixed one.
    pub samples: [usize; 2],
    /// Returns a size that depends on the machine, [`Setup::amount`].
    pub calibrate: Option<Calibrate<F>>,
    /// Makes the training.
    pub make: Make<F>,
}

/// Whether a training has its fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The training has its fault.
    Fault,
    /// The fault is fixed.
    Fixed,
}

impl Variant {
    /// Both variants, in the order in which they are timed.
    pub const ALL: [Self; 2] = [Self::Fault, Self::Fixed];

    /// Returns the name in the table and in names of files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Fixed => "fixed",
        }
    }

    /// Returns whether the training has its fault.
    pub fn is_fault(self) -> bool {
        self == Self::Fault
    }
}

/// The device and the sizes that a training is made with.
#[derive(Clone, Debug)]
pub struct Setup<F: Framework> {
    /// The device that the model is on.
    pub device: F::Device,
    /// Whether sizes are as small as possible.
    pub tiny: bool,
    /// The size that the case found by [`Case::calibrate`], or 1.
    pub amount: usize,
}

impl<F: Framework> Setup<F> {
    /// Returns the size of the training that is measured, or the one that only has to run.
    pub fn size(&self, full: usize, tiny: usize) -> usize {
        if self.tiny { tiny } else { full }
    }
}
