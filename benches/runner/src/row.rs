//! A row of the table.

use crate::{
    case::{Case, Framework, Setup, Variant},
    recording::{self, Recorded},
    timing::{self, Timed},
};
use std::{error::Error, path::Path};

/// A case with what is known of it so far.
pub(crate) struct Row<F: Framework> {
    pub(crate) case: &'static Case<F>,
    setup: Setup<F>,
    timed: Option<[Timed; 2]>,
    recorded: [Option<Recorded>; 2],
}

impl<F: Framework> Row<F> {
    pub(crate) fn new(case: &'static Case<F>, device: &F::Device, tiny: bool) -> Self {
        let setup = Setup { device: device.clone(), tiny, amount: 1 };
        Self { case, setup, timed: None, recorded: [None; 2] }
    }

    /// Finds the size of the case that depends on the machine.
    pub(crate) fn calibrate(&mut self) -> Result<(), F::Error> {
        F::configure(self.case, Variant::Fixed);
        if let Some(calibrate) = self.case.calibrate.filter(|_| !self.setup.tiny) {
            self.setup.amount = calibrate(&self.setup)?;
            eprintln!("{}: calibrated to {}", self.case.name, self.setup.amount);
        }
        Ok(())
    }

    pub(crate) fn time(&mut self) -> Result<(), F::Error> {
        self.timed = Some(timing::time(self.case, &self.setup)?);
        Ok(())
    }

    pub(crate) fn record(&mut self, variant: Variant, folder: &Path) -> Result<(), Box<dyn Error>> {
        let recorded = recording::record(self.case, &self.setup, variant, &folder.join(self.file(variant)))?;
        eprintln!("{}, {}: {recorded:?}", self.case.name, variant.name());
        self.recorded[variant as usize] = Some(recorded);
        Ok(())
    }

    fn file(&self, variant: Variant) -> String {
        format!("{}-{}-{}.json.gz", F::NAME, self.case.name, variant.name())
    }

    /// Returns the lines of the table. Where the variants have steps of different sizes, times are those of as many
    /// samples as the larger has, and `of steps` is the number of the smaller's steps that take that long.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let Case { name, model, kind, is_held_out, fix, samples, .. } = *self.case;
        Variant::ALL.into_iter().map(move |variant| {
            let (timed, recorded) = (self.timed.map(|timed| timed[variant as usize]), self.recorded[variant as usize]);
            let number = |number: Option<String>| number.unwrap_or_else(|| "null".to_owned());
            let of_steps = samples[0].max(samples[1]) / samples[variant as usize];
            format!(
                "{{\"case\":{name:?},\"framework\":{:?},\"model\":{model:?},\"variant\":{:?},\"kind\":{kind:?},\
                 \"held_out\":{is_held_out},\"step_us\":{},\"of steps\":{of_steps},\"timed steps\":{},\
                 \"recorded steps\":{},\"kernels\":{},\"calibrated\":{},\"fix\":{fix:?},\"trace\":{:?}}}",
                F::NAME,
                variant.name(),
                number(timed.map(|timed| format!("{:.1}", timed.step_us * of_steps as f64))),
                number(timed.map(|timed| timed.steps.to_string())),
                number(recorded.map(|recorded| recorded.steps.to_string())),
                number(recorded.map(|recorded| recorded.kernels.to_string())),
                self.setup.amount,
                self.file(variant),
            )
        })
    }
}
