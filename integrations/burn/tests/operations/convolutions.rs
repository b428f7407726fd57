//! Convolutions, pooling and interpolation, in which a window moves over the input.

use crate::ir::{bytes, module_flops, tensor, tensor_of};
use burn::{backend::ir::*, tensor::DType};
use kernspan::trace::Value;
use kernspan_burn::{Description, flops};

#[test]
fn conv1d() {
    // 10 inputs with padding 1, stride 2 and a kernel of 3 have 5 outputs; 4 channels in 2 groups become 6.
    let options = Conv1dOptionsIr { stride: [2], padding: [(1, 1)], dilation: [1], groups: 2 };
    let (x, weight, out) = (tensor(&[2, 4, 10]), tensor(&[6, 2, 3]), tensor(&[2, 6, 5]));
    let outputs = 2 * 6 * 5;
    let ir = Conv1dOpIr { x, weight, bias: Some(tensor(&[6])), options: options.clone(), out };
    assert_eq!(module_flops(ModuleOperationIr::Conv1d(ir)), Some(outputs * (2 * 2 * 3 + 1)));

    let (x, weight, output_grad) = (tensor(&[2, 4, 10]), tensor(&[6, 2, 3]), tensor(&[2, 6, 5]));
    let ir = Conv1dXBackwardOpIr { out: x.clone(), x, weight, output_grad, options: options.clone() };
    let operation = OperationIr::Module(ModuleOperationIr::Conv1dXBackward(ir));
    assert_eq!(flops(&operation), Some(outputs * 2 * 2 * 3));
    // The forward pass's input is not read.
    assert_eq!(bytes(&operation), 4 * (6 * 2 * 3 + outputs + 2 * 4 * 10));
    let (x, weight, output_grad) = (tensor(&[2, 4, 10]), tensor(&[6, 2, 3]), tensor(&[2, 6, 5]));
    let ir = Conv1dWeightBackwardOpIr { out: weight.clone(), x, weight, output_grad, options };
    assert_eq!(module_flops(ModuleOperationIr::Conv1dWeightBackward(ir)), Some(outputs * 2 * 2 * 3));
    let (x, bias, output_grad) = (tensor(&[2, 4, 10]), tensor(&[6]), tensor(&[2, 6, 5]));
    let ir = Conv1dBiasBackwardOpIr { out: bias.clone(), x, bias, output_grad };
    assert_eq!(module_flops(ModuleOperationIr::Conv1dBiasBackward(ir)), Some(outputs));
}

#[test]
fn conv2d_and_conv3d() {
    // 8 × 8 inputs without padding and a kernel of 3 × 3 have 6 × 6 outputs.
    let options = Conv2dOptionsIr { stride: [1; 2], padding: [(0, 0); 2], dilation: [1; 2], groups: 1 };
    let (x, weight, out) = (tensor(&[2, 3, 8, 8]), tensor(&[5, 3, 3, 3]), tensor(&[2, 5, 6, 6]));
    let ir = Conv2dOpIr { x, weight, bias: None, options: options.clone(), out };
    assert_eq!(module_flops(ModuleOperationIr::Conv2d(ir)), Some(2 * 5 * 6 * 6 * (2 * 3 * 9)));
    let (x, weight, output_grad) = (tensor(&[2, 3, 8, 8]), tensor(&[5, 3, 3, 3]), tensor(&[2, 5, 6, 6]));
    let ir = Conv2dWeightBackwardOpIr { out: weight.clone(), x, weight, output_grad, options };
    assert_eq!(module_flops(ModuleOperationIr::Conv2dWeightBackward(ir)), Some(2 * 5 * 6 * 6 * (2 * 3 * 9)));

    let options = Conv3dOptionsIr { stride: [1; 3], padding: [0; 3], dilation: [1; 3], groups: 1 };
    let (x, weight, out) = (tensor(&[1, 2, 4, 4, 4]), tensor(&[3, 2, 2, 2, 2]), tensor(&[1, 3, 3, 3, 3]));
    let ir = Conv3dOpIr { x, weight, bias: Some(tensor(&[3])), options, out };
    assert_eq!(module_flops(ModuleOperationIr::Conv3d(ir)), Some(3 * 27 * (2 * 2 * 8 + 1)));
}

#[test]
fn deformable_convolutions() {
    let options = || DeformableConv2dOptionsIr {
        stride: [1; 2],
        padding: [0; 2],
        dilation: [1; 2],
        weight_groups: 1,
        offset_groups: 1,
    };
    let (x, weight, offset) = (tensor(&[2, 3, 8, 8]), tensor(&[5, 3, 3, 3]), tensor(&[2, 18, 6, 6]));
    let out = tensor(&[2, 5, 6, 6]);
    let (products, outputs) = (2 * 5 * 6 * 6 * (2 * 3 * 9), 2 * 5 * 6 * 6);
    let bias = Some(tensor(&[5]));
    let forward = DeformConv2dOpIr {
        x: x.clone(),
        offset: offset.clone(),
        weight: weight.clone(),
        mask: None,
        bias: bias.clone(),
        options: options(),
        out: out.clone(),
    };
    assert_eq!(module_flops(ModuleOperationIr::DeformableConv2d(Box::new(forward))), Some(products + outputs));
    let backward = DeformConv2dBackwardOpIr {
        input_grad: x.clone(),
        offset_grad: offset.clone(),
        weight_grad: weight.clone(),
        x,
        offset,
        weight,
        mask: None,
        bias: bias.clone(),
        out_grad: out,
        options: options(),
        mask_grad: None,
        bias_grad: bias,
    };
    assert_eq!(
        module_flops(ModuleOperationIr::DeformableConv2dBackward(Box::new(backward))),
        Some(2 * products + outputs)
    );
}

#[test]
fn transposed_convolutions() {
    // Each of 2 · 3 · 4 inputs contributes to 2 outputs in each of 5 channels, which have (4 − 1) · 2 + 2 = 8 outputs.
    let options = ConvTranspose1dOptionsIr { stride: [2], padding: [0], padding_out: [0], dilation: [1], groups: 1 };
    let (x, weight, out) = (tensor(&[2, 3, 4]), tensor(&[3, 5, 2]), tensor(&[2, 5, 8]));
    let ir = ConvTranspose1dOpIr { x, weight, bias: Some(tensor(&[5])), options: options.clone(), out };
    assert_eq!(module_flops(ModuleOperationIr::ConvTranspose1d(ir)), Some(2 * (2 * 3 * 4) * 5 * 2 + 2 * 5 * 8));
    let (x, weight, output_grad) = (tensor(&[2, 3, 4]), tensor(&[3, 5, 2]), tensor(&[2, 5, 8]));
    let ir = ConvTranspose1dWeightBackwardOpIr { out: weight.clone(), x, weight, output_grad, options };
    assert_eq!(module_flops(ModuleOperationIr::ConvTranspose1dWeightBackward(ir)), Some(2 * (2 * 3 * 4) * 5 * 2));

    let options =
        ConvTranspose2dOptionsIr { stride: [2; 2], padding: [0; 2], padding_out: [0; 2], dilation: [1; 2], groups: 1 };
    let (x, weight, out) = (tensor(&[1, 3, 4, 4]), tensor(&[3, 5, 2, 2]), tensor(&[1, 5, 8, 8]));
    let ir = ConvTranspose2dOpIr { x, weight, bias: Some(tensor(&[5])), options, out };
    assert_eq!(module_flops(ModuleOperationIr::ConvTranspose2d(ir)), Some(2 * (3 * 4 * 4) * 5 * 4 + 5 * 8 * 8));
}

#[test]
fn pooling() {
    // Windows of 2 × 2 have 3 × 3 positions in 4 × 4 inputs.
    let (x, out) = (tensor(&[1, 2, 4, 4]), tensor(&[1, 2, 3, 3]));
    let ir = AvgPool2dOpIr {
        x: x.clone(),
        kernel_size: [2; 2],
        stride: [1; 2],
        padding: [0; 2],
        count_include_pad: true,
        ceil_mode: false,
        out: out.clone(),
    };
    assert_eq!(module_flops(ModuleOperationIr::AvgPool2d(ir)), Some(2 * 9 * 4));
    let ir = AvgPool2dBackwardOpIr {
        x: x.clone(),
        grad: out.clone(),
        kernel_size: [2; 2],
        stride: [1; 2],
        padding: [0; 2],
        count_include_pad: true,
        ceil_mode: false,
        out: x.clone(),
    };
    assert_eq!(module_flops(ModuleOperationIr::AvgPool2dBackward(ir)), Some(2 * 9 * 4));
    let indices = tensor_of(&[1, 2, 3, 3], DType::I64);
    let ir = MaxPool2dWithIndicesOpIr {
        x: x.clone(),
        kernel_size: [2; 2],
        stride: [1; 2],
        padding: [0; 2],
        dilation: [1; 2],
        ceil_mode: false,
        out: out.clone(),
        out_indices: indices.clone(),
    };
    let operation = OperationIr::Module(ModuleOperationIr::MaxPool2dWithIndices(ir));
    assert_eq!((flops(&operation), bytes(&operation)), (Some(2 * 9 * 4), 4 * (2 * 16 + 2 * 9) + 8 * 2 * 9));
    assert_eq!(Description::of(&operation).field("op.dtype.indices"), Some(&Value::from("i64")));
    let ir = MaxPool2dWithIndicesBackwardOpIr {
        x: x.clone(),
        grad: out,
        indices,
        kernel_size: [2; 2],
        stride: [1; 2],
        padding: [0; 2],
        dilation: [1; 2],
        ceil_mode: false,
        out: x.clone(),
    };
    assert_eq!(module_flops(ModuleOperationIr::MaxPool2dWithIndicesBackward(ir)), Some(2 * 9));
    let ir = AdaptiveAvgPool2dOpIr { x, output_size: [2; 2], out: tensor(&[1, 2, 2, 2]) };
    assert_eq!(module_flops(ModuleOperationIr::AdaptiveAvgPool2d(ir)), Some(2 * 16 + 2 * 4));
}

#[test]
fn interpolation() {
    let of = |mode| {
        let options = InterpolateOptionsIr { mode, align_corners: false };
        let (x, out) = (tensor(&[1, 3, 4, 4]), tensor(&[1, 3, 8, 8]));
        module_flops(ModuleOperationIr::Interpolate(InterpolateOpIr { x, output_size: [8, 8], options, out }))
    };
    assert_eq!(of(InterpolateModeIr::Nearest), Some(0));
    assert_eq!(of(InterpolateModeIr::Bilinear), Some(3 * 64 * 2 * 4));
    assert_eq!(of(InterpolateModeIr::Bicubic), Some(3 * 64 * 2 * 16));
    let options = InterpolateOptionsIr { mode: InterpolateModeIr::Bilinear, align_corners: false };
    let (x, grad) = (tensor(&[1, 3, 4, 4]), tensor(&[1, 3, 8, 8]));
    let ir = InterpolateBackwardOpIr { out: x.clone(), x, grad, output_size: [8, 8], options };
    assert_eq!(module_flops(ModuleOperationIr::InterpolateBackward(ir)), Some(3 * 64 * 2 * 4));
}
