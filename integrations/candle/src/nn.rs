//! candle-nn's constructors, for a whole model at once: `use kernspan_candle::nn::{linear, Linear}` instead of
//! `use candle_nn::{linear, Linear}`, and every layer is a [`Traced`] one, at the path of its `VarBuilder`.
//!
//! ```
//! use candle_core::{DType, Device, Result, Tensor};
//! use candle_nn::{Module, VarBuilder};
//! use kernspan_candle::nn::{Linear, linear}; // was: use candle_nn::{Linear, linear};
//!
//! struct Mlp {
//!     fc1: Linear,
//!     fc2: Linear,
//! }
//!
//! impl Mlp {
//!     fn new(vb: VarBuilder) -> Result<Self> {
//!         Ok(Self { fc1: linear(784, 128, vb.pp("fc1"))?, fc2: linear(128, 10, vb.pp("fc2"))? })
//!     }
//! }
//!
//! impl Module for Mlp {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         self.fc2.forward(&self.fc1.forward(x)?.relu()?)
//!     }
//! }
//! # Mlp::new(VarBuilder::zeros(DType::F32, &Device::Cpu))?.forward(&Tensor::zeros((2, 784), DType::F32, &Device::Cpu)?)?;
//! # Ok::<(), candle_core::Error>(())
//! ```
//!
//! A layer that is made of tensors, as `candle_nn::Linear::new` does, is wrapped by [`Traced::new`].
//!
//! They do what candle-nn's do: also cut gradients where those do. The fused kernels of `RmsNorm` and of `LayerNorm` with a bias have no
//! backward pass in Candle 0.11, and say nothing of it: to train, wrap what is made of differentiable parts, as
//! `Traced::at(vb, |vb| Ok(candle_nn::rms_norm(size, eps, vb)?.into_inner()))`.

use crate::{Traced, TracedT};
use candle_core::Result;
use candle_nn::VarBuilder;
pub use candle_nn::{
    BatchNormConfig, Conv1dConfig, Conv2dConfig, ConvTranspose1dConfig, ConvTranspose2dConfig, LayerNormConfig,
};

/// The traced types and constructors of one module of candle-nn.
macro_rules! layers {
    ($($wrapper:ident<$type:ident>: $($function:ident $(<$generic:ident: $bound:path>)? ($($argument:ident: $argument_type:ty),*)),+;)*) => {
        $(
            #[doc = concat!("[`candle_nn::", stringify!($type), "`], traced.")]
            pub type $type = $wrapper<candle_nn::$type>;
            $(
                #[doc = concat!("[`candle_nn::", stringify!($function), "()`], traced at the builder's path.")]
                pub fn $function$(<$generic: $bound>)?($($argument: $argument_type,)* vb: VarBuilder<'_>) -> Result<$type> {
                    $wrapper::at(vb, |vb| candle_nn::$function($($argument,)* vb))
                }
            )+
        )*
    };
}

layers! {
    Traced<Linear>:
        linear(in_dim: usize, out_dim: usize),
        linear_no_bias(in_dim: usize, out_dim: usize),
        linear_b(in_dim: usize, out_dim: usize, bias: bool);
    Traced<Conv1d>:
        conv1d(in_channels: usize, out_channels: usize, kernel_size: usize, config: Conv1dConfig),
        conv1d_no_bias(in_channels: usize, out_channels: usize, kernel_size: usize, config: Conv1dConfig);
    Traced<Conv2d>:
        conv2d(in_channels: usize, out_channels: usize, kernel_size: usize, config: Conv2dConfig),
        conv2d_no_bias(in_channels: usize, out_channels: usize, kernel_size: usize, config: Conv2dConfig);
    Traced<ConvTranspose1d>:
        conv_transpose1d(in_channels: usize, out_channels: usize, kernel_size: usize, config: ConvTranspose1dConfig),
        conv_transpose1d_no_bias(in_channels: usize, out_channels: usize, kernel_size: usize, config: ConvTranspose1dConfig);
    Traced<ConvTranspose2d>:
        conv_transpose2d(in_channels: usize, out_channels: usize, kernel_size: usize, config: ConvTranspose2dConfig),
        conv_transpose2d_no_bias(in_channels: usize, out_channels: usize, kernel_size: usize, config: ConvTranspose2dConfig);
    Traced<Embedding>: embedding(in_size: usize, out_size: usize);
    Traced<LayerNorm>:
        layer_norm<C: Into<LayerNormConfig>>(size: usize, config: C),
        layer_norm_no_bias(size: usize, eps: f64);
    Traced<RmsNorm>: rms_norm(size: usize, eps: f64);
    Traced<GroupNorm>: group_norm(num_groups: usize, num_channels: usize, eps: f64);
    Traced<PReLU>: prelu(num_channels: Option<usize>);
    TracedT<BatchNorm>: batch_norm<C: Into<BatchNormConfig>>(num_features: usize, config: C);
}
