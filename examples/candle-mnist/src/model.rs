use candle_core::{Result, Tensor};
use candle_nn::{Dropout, ModuleT, VarBuilder};
// These were `candle_nn`'s. Layers with weights need no other change; other modules can be wrapped, as the dropout
// below.
use kernspan_candle::{
    TracedT,
    nn::{BatchNorm, BatchNormConfig, Conv2d, Conv2dConfig, Linear, batch_norm, conv2d, linear},
};

/// A model of two convolutions and two linear layers.
pub(crate) struct Model {
    conv1: Conv2d,
    norm1: BatchNorm,
    conv2: Conv2d,
    norm2: BatchNorm,
    fc1: Linear,
    dropout: TracedT<Dropout>,
    fc2: Linear,
}

impl Model {
    pub(crate) fn new(vb: VarBuilder<'_>) -> Result<Self> {
        let halving = Conv2dConfig { padding: 1, stride: 2, ..Conv2dConfig::default() };
        Ok(Self {
            conv1: conv2d(1, 16, 3, halving, vb.pp("conv1"))?,
            norm1: batch_norm(16, BatchNormConfig::default(), vb.pp("norm1"))?,
            conv2: conv2d(16, 32, 3, halving, vb.pp("conv2"))?,
            norm2: batch_norm(32, BatchNormConfig::default(), vb.pp("norm2"))?,
            fc1: linear(32 * 7 * 7, 128, vb.pp("fc1"))?,
            dropout: TracedT::new("dropout", Dropout::new(0.2)),
            fc2: linear(128, 10, vb.pp("fc2"))?,
        })
    }
}

impl ModuleT for Model {
    #[tracing::instrument(name = "forward", skip_all)]
    fn forward_t(&self, images: &Tensor, train: bool) -> Result<Tensor> {
        let x = self.norm1.forward_t(&self.conv1.forward(images)?, train)?.relu()?;
        let x = self.norm2.forward_t(&self.conv2.forward(&x)?, train)?.relu()?;
        let x = self.fc1.forward(&x.flatten_from(1)?)?.relu()?;
        self.fc2.forward(&self.dropout.forward_t(&x, train)?)
    }
}
