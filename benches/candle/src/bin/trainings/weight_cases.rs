//! Trainings with a second set of weights: an average of those that are trained, or a reference that stays as it is.

use crate::{
    case::{Setup, Step},
    models::{batches, frozen, next, sgd, trained},
    transformer::{Size, Transformer, Ways},
};
use candle_core::{D, DType, Result, Tensor, Var};
use candle_nn::{Module, Optimizer, VarBuilder, ops};
use kernspan_candle::nn::{self, Linear};
use tracing::{info_span, instrument};
use trainings_runner::Variant;

/// A diffusion model whose weights are averaged over steps: on the host, which gets them in each step, or on the GPU.
pub(crate) fn averaged(setup: &Setup, variant: Variant) -> Result<Step> {
    const CHANNELS: usize = 16;
    // There are 28 MiB of weights.
    let size = Size { width: setup.size(768, 16), heads: setup.size(12, 2), blocks: 1 };
    let shape = [setup.size(64, 2), setup.size(256, 4), CHANNELS];
    let (variables, vb) = trained(&setup.device);
    let ways = Ways { fused_norm: false, fused_softmax: false, norm_queries: false, activation: Tensor::relu };
    let into = nn::linear_no_bias(CHANNELS, size.width, vb.pp("into"))?;
    let transformer = Transformer::new(size, ways, &vb)?;
    let out = nn::linear_no_bias(size.width, CHANNELS, vb.pp("out"))?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&shape, 1, &setup.device)?;
    let mut average = Average::new(variables.all_vars(), variant)?;
    let (keeps, adds) = (0.8_f64, 0.6_f64);
    Ok(Box::new(move || {
        let (images, _) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let noise = images.randn_like(0.0, 1.0)?;
            let noisy = ((&images * keeps)? + (&noise * adds)?)?;
            let denoise = || out.forward(&transformer.forward(&into.forward(&noisy)?)?);
            let predicted = info_span!("denoise").in_scope(denoise)?;
            let loss = info_span!("loss").in_scope(|| (&predicted - &noise)?.sqr()?.mean_all())?;
            optimizer.backward_step(&loss)?;
            average.update()
        })
    }))
}

/// The exponential moving average of weights.
struct Average {
    weights: Vec<Var>,
    means: Means,
}

enum Means {
    OnHost(Vec<Vec<f32>>),
    OnDevice(Vec<Tensor>),
}

impl Average {
    fn new(weights: Vec<Var>, variant: Variant) -> Result<Self> {
        let means = if variant.is_fault() {
            let values = |weight: &Var| weight.flatten_all()?.to_vec1();
            Means::OnHost(weights.iter().map(values).collect::<Result<_>>()?)
        } else {
            Means::OnDevice(weights.iter().map(|weight| weight.as_detached_tensor().copy()).collect::<Result<_>>()?)
        };
        Ok(Self { weights, means })
    }

    #[instrument(name = "average_weights", skip_all)]
    fn update(&mut self) -> Result<()> {
        const DECAY: f32 = 0.999;
        match &mut self.means {
            Means::OnHost(means) => {
                for (weight, mean) in self.weights.iter().zip(means) {
                    let values = weight.flatten_all()?.to_vec1::<f32>()?;
                    mean.iter_mut().zip(&values).for_each(|(mean, value)| *mean += (1.0 - DECAY) * (value - *mean));
                }
            }
            Means::OnDevice(means) => {
                for (weight, mean) in self.weights.iter().zip(means) {
                    let new = weight.as_detached_tensor();
                    *mean = ((&*mean * f64::from(DECAY))? + (new * f64::from(1.0 - DECAY))?)?;
                }
            }
        }
        Ok(())
    }
}

/// A language model that is rewarded for its words, but not for going far from a reference, which is not trained. The
/// reference runs for the reward and again for the penalty, or once for both.
pub(crate) fn rewarded(setup: &Setup, variant: Variant) -> Result<Step> {
    // How much a difference from the reference costs.
    const BETA: f64 = 0.05;
    let (batch, length, words) = (setup.size(32, 2), setup.size(256, 4), setup.size(512, 8));
    let size = Size { width: setup.size(768, 16), heads: setup.size(12, 2), blocks: 1 };
    let ways = Ways { fused_norm: false, fused_softmax: false, norm_queries: false, activation: Tensor::gelu };
    let (variables, vb) = trained(&setup.device);
    let policy = Policy::new(size, ways, words, &vb)?;
    let (size, ways) =
        (Size { blocks: setup.size(6, 2), ..size }, Ways { fused_norm: true, fused_softmax: true, ..ways });
    let reference = Policy::new(size, ways, words, &frozen(DType::F32, &setup.device))?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[batch, length, size.width], 1, &setup.device)?;
    let spoken: Vec<u32> = (0..batch * length).map(|index| (index * 13 % words) as u32).collect();
    let spoken = Tensor::from_vec(spoken, (batch * length, 1), &setup.device)?;
    let rewards = Tensor::randn(0_f32, 1.0, (batch * length, 1), &setup.device)?;
    let refer = move |x: &Tensor| info_span!("reference").in_scope(|| reference.probabilities(x)?.log());
    Ok(Box::new(move || {
        let (x, _) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let logits = info_span!("policy").in_scope(|| policy.logits(&x))?;
            let logs = ops::log_softmax(&logits, D::Minus1)?;
            let of_spoken = logs.gather(&spoken, 1)?;
            let expected = refer(&x)?;
            let advantages = info_span!("advantages").in_scope(|| {
                let distance = (of_spoken.detach() - expected.gather(&spoken, 1)?)?;
                &rewards - (distance * BETA)?
            })?;
            let expected = if variant.is_fault() { refer(&x)? } else { expected };
            let loss = info_span!("loss").in_scope(|| {
                let divergence = (logs.exp()? * (&logs - expected)?)?.sum(1)?.mean_all()?;
                (divergence * BETA)? - (of_spoken * advantages)?.mean_all()?
            })?;
            optimizer.backward_step(&loss)
        })
    }))
}

/// A transformer with a probability for each word at each position.
struct Policy {
    transformer: Transformer,
    head: Linear,
}

impl Policy {
    fn new(size: Size, ways: Ways, words: usize, vb: &VarBuilder<'_>) -> Result<Self> {
        Ok(Self {
            transformer: Transformer::new(size, ways, vb)?,
            head: nn::linear_no_bias(size.width, words, vb.pp("head"))?,
        })
    }

    /// Returns a row for each position.
    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        self.head.forward(&self.transformer.forward(x)?)?.flatten(0, 1)
    }

    /// Returns the same as probabilities, which have no gradient.
    fn probabilities(&self, x: &Tensor) -> Result<Tensor> {
        ops::softmax_last_dim(&self.logits(x)?)
    }
}
