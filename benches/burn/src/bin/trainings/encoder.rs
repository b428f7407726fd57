//! A transformer.

use crate::cases::{CLASSES, SENTENCES, Setup, Sizes};
use burn::{
    module::Module,
    nn::{
        Linear, LinearConfig,
        transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput},
    },
    tensor::Tensor,
};
use tracing::{info_span, instrument};

/// A stack of attention and feed-forward layers that classifies a sentence.
#[derive(Module, Debug)]
pub(crate) struct Encoder {
    layers: TransformerEncoder,
    head: Linear,
}

impl Encoder {
    pub(crate) fn new(setup: &Setup) -> Self {
        let width = setup.width();
        let config = TransformerEncoderConfig::new(width, 2 * width, setup.size(16, 2), setup.size(3, 1));
        Self {
            layers: config.with_dropout(0.0).with_norm_first(true).init(&setup.device),
            head: LinearConfig::new(width, CLASSES).init(&setup.device),
        }
    }

    /// Returns the number of sentences, of words of each, and of values of a word.
    pub(crate) fn shape(setup: &Setup) -> [usize; 3] {
        [setup.size(SENTENCES, 2), setup.size(128, 4), setup.width()]
    }

    #[instrument(skip_all)]
    pub(crate) fn forward(&self, x: Tensor<3>) -> Tensor<2> {
        let [sentences, _, width] = x.dims();
        let x = info_span!("encoder").in_scope(|| self.layers.forward(TransformerEncoderInput::new(x)));
        info_span!("head").in_scope(|| self.head.forward(x.mean_dim(1).reshape([sentences, width])))
    }
}
