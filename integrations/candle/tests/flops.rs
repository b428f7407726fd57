//! FLOPs and parameters of modules, compared with values computed by hand.

use candle_core::{
    DType, Device, Result, Tensor,
    quantized::{GgmlDType, QMatMul, QTensor},
};
use candle_nn::{
    BatchNormConfig, Conv1dConfig, Conv2dConfig, ConvTranspose1dConfig, ConvTranspose2dConfig, LayerNormConfig,
    ModuleT, VarBuilder, VarMap,
};
use kernspan::{Collected, Profiler, trace::Value};
use kernspan_candle::{Op, Traced, flops, nn};
use tracing_subscriber::prelude::*;

/// Runs this under a profiler and returns the FLOPs and the parameters of its only span.
fn flops_and_parameters(run: impl FnOnce(VarBuilder<'_>) -> Result<Tensor>) -> (Option<u64>, Option<u64>) {
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
    let variables = VarMap::new();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        run(VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu)).unwrap();
    });
    profiler.finish().unwrap();
    let trace = collected.only();
    assert_eq!(trace.spans().len(), 1);
    let span = trace.spans().next().unwrap();
    let number = |field: &str| span.field(field).and_then(Value::as_u64);
    (number("op.flops"), number("op.parameters"))
}

fn ones(shape: &[usize]) -> Tensor {
    Tensor::ones(shape, DType::F32, &Device::Cpu).unwrap()
}

#[test]
fn linear() {
    // Each of 5 · 3 rows has 7 outputs, each a sum of 4 products and a bias.
    let flops = 5 * 3 * 7 * (2 * 4);
    assert_eq!(
        flops_and_parameters(|vb| nn::linear(4, 7, vb)?.forward(&ones(&[5, 3, 4]))),
        (Some(flops + 5 * 3 * 7), Some(4 * 7 + 7))
    );
    assert_eq!(
        flops_and_parameters(|vb| nn::linear_no_bias(4, 7, vb)?.forward(&ones(&[5, 3, 4]))),
        (Some(flops), Some(4 * 7))
    );
}

#[test]
fn conv1d() {
    // 10 inputs with padding 1, stride 2 and a kernel of 3 have 5 outputs; 4 channels in 2 groups become 6.
    let config = Conv1dConfig { padding: 1, stride: 2, groups: 2, ..Conv1dConfig::default() };
    let outputs = 2 * 6 * 5;
    let expected = (Some(outputs * (2 * 2 * 3 + 1)), Some(6 * 2 * 3 + 6));
    assert_eq!(flops_and_parameters(|vb| nn::conv1d(4, 6, 3, config, vb)?.forward(&ones(&[2, 4, 10]))), expected);
}

#[test]
fn conv2d() {
    // 8 × 8 inputs without padding and a kernel of 3 × 3 have 6 × 6 outputs.
    let outputs = 2 * 5 * 6 * 6;
    let run =
        |vb: VarBuilder<'_>| nn::conv2d_no_bias(3, 5, 3, Conv2dConfig::default(), vb)?.forward(&ones(&[2, 3, 8, 8]));
    assert_eq!(flops_and_parameters(run), (Some(outputs * 2 * 3 * 9), Some(5 * 3 * 9)));
}

#[test]
fn transposed_convolutions() {
    // Each of 2 · 3 · 4 inputs contributes to 2 outputs in each of 5 channels, which have (4 − 1) · 2 + 2 = 8 outputs.
    let config = ConvTranspose1dConfig { stride: 2, ..ConvTranspose1dConfig::default() };
    let expected = (Some(2 * (2 * 3 * 4) * 5 * 2 + 2 * 5 * 8), Some(3 * 5 * 2 + 5));
    assert_eq!(
        flops_and_parameters(|vb| nn::conv_transpose1d(3, 5, 2, config, vb)?.forward(&ones(&[2, 3, 4]))),
        expected
    );
    let config = ConvTranspose2dConfig { stride: 2, ..ConvTranspose2dConfig::default() };
    let expected = (Some(2 * (3 * 4 * 4) * 5 * 4 + 5 * 8 * 8), Some(3 * 5 * 4 + 5));
    assert_eq!(
        flops_and_parameters(|vb| nn::conv_transpose2d(3, 5, 2, config, vb)?.forward(&ones(&[1, 3, 4, 4]))),
        expected
    );
}

#[test]
fn embedding_takes_none() {
    let tokens = Tensor::new(&[[1_u32, 2, 3]], &Device::Cpu).unwrap();
    assert_eq!(flops_and_parameters(|vb| nn::embedding(10, 4, vb)?.forward(&tokens)), (Some(0), Some(40)));
}

#[test]
fn norms() {
    let elements = 3 * 8;
    let layer_norm = |vb: VarBuilder<'_>| nn::layer_norm(8, LayerNormConfig::default(), vb)?.forward(&ones(&[3, 8]));
    assert_eq!(flops_and_parameters(layer_norm), (Some(7 * elements), Some(16)));
    assert_eq!(
        flops_and_parameters(|vb| nn::rms_norm(8, 1e-5, vb)?.forward(&ones(&[3, 8]))),
        (Some(4 * elements), Some(8))
    );
    let batch_norm = |train: bool| {
        move |vb: VarBuilder<'_>| {
            nn::batch_norm(8, BatchNormConfig::default(), vb)?.forward_t(&ones(&[3, 8, 2, 2]), train)
        }
    };
    // The running mean and variance are not parameters.
    assert_eq!(flops_and_parameters(batch_norm(false)), (Some(4 * 4 * elements), Some(16)));
    assert_eq!(flops_and_parameters(batch_norm(true)), (Some(7 * 4 * elements), Some(16)));
    assert_eq!(flops_and_parameters(|vb| nn::group_norm(2, 8, 1e-5, vb)?.forward(&ones(&[3, 8, 2]))), (None, Some(16)));
}

#[test]
fn a_quantized_matrix_is_a_matrix() {
    let weight = QTensor::quantize(&ones(&[64, 32]), GgmlDType::Q8_0).unwrap();
    let run = |_: VarBuilder<'_>| Traced::new("q", QMatMul::from_qtensor(weight)?).forward(&ones(&[3, 32]));
    assert_eq!(flops_and_parameters(run), (Some(2 * 3 * 64 * 32), Some(64 * 32)));
}

#[test]
fn attention_is_two_products_and_a_softmax() {
    let (q, k) = (ones(&[2, 4, 5, 8]), ones(&[2, 4, 9, 8]));
    let run = |_: VarBuilder<'_>| {
        let op = Op::new("attention").flops(flops::attention);
        op.run(&[&q, &k, &k], || candle_nn::ops::softmax_last_dim(&q.matmul(&k.t()?)?)?.matmul(&k))
    };
    let scores = 2 * 4 * 5 * 9;
    assert_eq!(flops_and_parameters(run), (Some(scores * (2 * 8 + 6 + 2 * 8)), None));
}
