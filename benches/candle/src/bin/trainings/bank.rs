//! Contrastive learning that remembers the features of the last samples, to look for neighbours among them.

use crate::{
    case::{Setup, Step},
    models::{Mlp, batches, next, sgd, trained},
};
use candle_core::{DType, Result, Tensor};
use candle_nn::{Module, Optimizer, loss};
use tracing::info_span;
use trainings_runner::Variant;

/// The batches whose features are remembered.
const REMEMBERED: usize = 8;

/// What is remembered, one batch after the other.
enum Bank {
    OnHost(Vec<f32>),
    OnDevice(Tensor),
}

/// An encoder that makes similar features of two noisy views of a sample. Features are remembered on the host, which
/// gets them in each step, or on the GPU.
pub(crate) fn remembered(setup: &Setup, variant: Variant) -> Result<Step> {
    // Scales similarities.
    const SHARPNESS: f64 = 10.0;
    // The features of a batch have 16 MiB.
    let (values, width, features, batch) =
        (setup.size(2048, 16), setup.size(2048, 8), setup.size(1024, 8), setup.size(4096, 4));
    let device = setup.device.clone();
    let (variables, vb) = trained(&device);
    let encoder = Mlp::new(&[values, width, width, width, features], &vb)?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[batch, values], 1, &device)?;
    let own = Tensor::arange(0, batch as u32, &device)?;
    let mut bank = if variant.is_fault() {
        Bank::OnHost(vec![0.0; REMEMBERED * batch * features])
    } else {
        Bank::OnDevice(Tensor::zeros((REMEMBERED * batch, features), DType::F32, &device)?)
    };
    let mut step = 0;
    let unit = |x: &Tensor| x.broadcast_div(&x.sqr()?.sum_keepdim(1)?.sqrt()?);
    Ok(Box::new(move || {
        let (x, _) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let view = || unit(&encoder.forward(&(&x + (x.randn_like(0.0, 1.0)? * 0.1)?)?)?);
            let (one, other) = (view()?, view()?);
            let loss = info_span!("loss").in_scope(|| {
                let similarities = (one.matmul(&other.t()?)? * SHARPNESS)?;
                loss::cross_entropy(&similarities, &own)
            })?;
            optimizer.backward_step(&loss)?;
            let at = step % REMEMBERED;
            step += 1;
            info_span!("remember").in_scope(|| match &mut bank {
                Bank::OnHost(rows) => {
                    let new = one.flatten_all()?.to_vec1::<f32>()?;
                    rows[at * new.len()..][..new.len()].copy_from_slice(&new);
                    Ok(())
                }
                Bank::OnDevice(rows) => rows.slice_set(&one.detach(), 0, at * batch),
            })
        })
    }))
}
