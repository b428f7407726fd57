//! Traced versions of candle-nn's layers and constructors.
//!
//! Write `use kernspan_candle::nn::{linear, Linear}` instead of `use candle_nn::{linear, Linear}`, and every layer is a
//! [`Traced`] one, at the path of its `VarBuilder`.
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
//! # let x = Tensor::zeros((2, 784), DType::F32, &Device::Cpu)?;
//! # Mlp::new(VarBuilder::zeros(DType::F32, &Device::Cpu))?.forward(&x)?;
//! # Ok::<(), candle_core::Error>(())
//! ```
//!
//! Wrap a layer that is made from tensors, as by `candle_nn::Linear::new`, with [`Traced::new`].
//!
//! The layers compute the same as candle-nn's, including a limit: the fused kernels of `RmsNorm` and of `LayerNorm`
//! with a bias have no backward pass in Candle 0.11, and drop gradients silently. To train, wrap a layer made of
//! differentiable parts: `Traced::at(vb, |vb| Ok(candle_nn::rms_norm(size, eps, vb)?.into_inner()))`.

use crate::traced::{Traced, TracedT};
use candle_core::Result;
use candle_nn::VarBuilder;
pub use candle_nn::{
    BatchNormConfig, Conv1dConfig, Conv2dConfig, ConvTranspose1dConfig, ConvTranspose2dConfig, LayerNormConfig,
};

/// Defines the traced type and the traced constructors of each layer.
macro_rules! layers {
    ($(
        $wrapper:ident<$type:ident>:
        $($function:ident $(<$generic:ident: $bound:path>)? ($($argument:ident: $argument_type:ty),*)),+;
    )*) => {
        $(
            #[doc = concat!("[`candle_nn::", stringify!($type), "`], traced.")]
            pub type $type = $wrapper<candle_nn::$type>;
            $(
                #[doc = concat!("[`candle_nn::", stringify!($function), "()`], traced at the builder's path.")]
                pub fn $function$(<$generic: $bound>)?(
                    $($argument: $argument_type,)*
                    vb: VarBuilder<'_>,
                ) -> Result<$type> {
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
        conv_transpose1d_no_bias(
            in_channels: usize,
            out_channels: usize,
            kernel_size: usize,
            config: ConvTranspose1dConfig
        );
    Traced<ConvTranspose2d>:
        conv_transpose2d(in_channels: usize, out_channels: usize, kernel_size: usize, config: ConvTranspose2dConfig),
        conv_transpose2d_no_bias(
            in_channels: usize,
            out_channels: usize,
            kernel_size: usize,
            config: ConvTranspose2dConfig
        );
    Traced<Embedding>: embedding(in_size: usize, out_size: usize);
    Traced<LayerNorm>:
        layer_norm<C: Into<LayerNormConfig>>(size: usize, config: C),
        layer_norm_no_bias(size: usize, eps: f64);
    Traced<RmsNorm>: rms_norm(size: usize, eps: f64);
    Traced<GroupNorm>: group_norm(num_groups: usize, num_channels: usize, eps: f64);
    Traced<PReLU>: prelu(num_channels: Option<usize>);
    TracedT<BatchNorm>: batch_norm<C: Into<BatchNormConfig>>(num_features: usize, config: C);
}
