//! Recurrent networks, whose kernels are short.

use crate::{
    case::{Setup, Step},
    models::{batches, next, sgd, trained},
};
use candle_core::Result;
use candle_nn::{
    Optimizer, loss,
    rnn::{LSTMConfig, RNN, lstm},
};
use kernspan_candle::nn::linear;
use tracing::info_span;
use trainings_runner::Variant;

/// An LSTM that reads a batch of sequences in four parts, one after the other, or all at once.
pub(crate) fn parts(setup: &Setup, variant: Variant) -> Result<Step> {
    const CLASSES: usize = 64;
    const PARTS: usize = 4;
    let (width, sequences, length) = (setup.size(1024, 8), setup.size(512, 8), setup.size(8, 2));
    let (variables, vb) = trained(&setup.device);
    let recurrent = lstm(width, width, LSTMConfig::default(), vb.pp("lstm"))?;
    let head = linear(width, CLASSES, vb.pp("head"))?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[sequences, length, width], CLASSES, &setup.device)?;
    let parts = if variant.is_fault() { PARTS } else { 1 };
    Ok(Box::new(move || {
        let (x, labels) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let part = |index: usize| {
                let size = sequences / parts;
                let (x, labels) = (x.narrow(0, index * size, size)?, labels.narrow(0, index * size, size)?);
                let states = info_span!("lstm").in_scope(|| recurrent.seq(&x.contiguous()?))?;
                let Some(last) = states.last() else { candle_core::bail!("no states") };
                let logits = head.forward(last.h())?;
                info_span!("loss").in_scope(|| loss::cross_entropy(&logits, &labels))
            };
            let sum = (1..parts).try_fold(part(0)?, |sum, index| sum + part(index)?)?;
            optimizer.backward_step(&(sum / parts as f64)?)
        })
    }))
}
