use crate::digits::Batch;
use burn::{
    module::Module,
    nn::{
        BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig, PaddingConfig2d,
        conv::{Conv2d, Conv2dConfig},
        loss::CrossEntropyLossConfig,
    },
    tensor::{Device, Tensor, activation::relu},
    train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep},
};
use kernspan_burn::backward;
use tracing::instrument;

/// A model of two convolutions and two linear layers.
#[derive(Module, Debug)]
pub(crate) struct Model {
    conv1: Convolution,
    conv2: Convolution,
    classifier: Classifier,
}

/// A convolution that halves the size of the image, with a norm.
#[derive(Module, Debug)]
struct Convolution {
    conv: Conv2d,
    norm: BatchNorm,
}

/// Two linear layers that map the image to the scores of the digits.
#[derive(Module, Debug)]
struct Classifier {
    fc1: Linear,
    dropout: Dropout,
    fc2: Linear,
}

impl Model {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            conv1: Convolution::new(1, 16, device),
            conv2: Convolution::new(16, 32, device),
            classifier: Classifier {
                fc1: LinearConfig::new(32 * 7 * 7, 128).init(device),
                dropout: DropoutConfig::new(0.2).init(),
                fc2: LinearConfig::new(128, 10).init(device),
            },
        }
    }

    // Burn's modules are no spans by themselves. `#[instrument]` makes yours spans, and `op.module` names their path.
    #[instrument(skip_all)]
    pub(crate) fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.classifier.forward(self.conv2.forward(self.conv1.forward(images, "conv1"), "conv2"))
    }

    /// Returns the scores of a batch and the loss.
    pub(crate) fn classify(&self, batch: Batch) -> ClassificationOutput {
        let logits = self.forward(batch.images);
        let loss = CrossEntropyLossConfig::new().init(&logits.device()).forward(logits.clone(), batch.labels.clone());
        ClassificationOutput::new(loss, logits, batch.labels)
    }
}

impl Convolution {
    fn new(from: usize, to: usize, device: &Device) -> Self {
        let halving = Conv2dConfig::new([from, to], [3, 3]).with_stride([2, 2]);
        let halving = halving.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1));
        Self { conv: halving.init(device), norm: BatchNormConfig::new(to).init(device) }
    }

    #[instrument(name = "convolution", skip_all, fields(op.module = module))]
    fn forward(&self, images: Tensor<4>, module: &str) -> Tensor<4> {
        relu(self.norm.forward(self.conv.forward(images)))
    }
}

impl Classifier {
    #[instrument(name = "classifier", skip_all, fields(op.module = "classifier"))]
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = relu(self.fc1.forward(images.flatten(1, 3)));
        self.fc2.forward(self.dropout.forward(x))
    }
}

impl TrainStep for Model {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> TrainOutput<ClassificationOutput> {
        let output = self.classify(batch);
        TrainOutput::new(self, backward(&output.loss), output)
    }
}

impl InferenceStep for Model {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> ClassificationOutput {
        self.classify(batch)
    }
}
