//! The modules of models, with their parameters.

use burn::{
    module::{Lora, Module},
    nn::{
        BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig, PaddingConfig2d, Relu,
        conv::{Conv2d, Conv2dConfig},
    },
    tensor::{DType, Device},
};
use kernspan_burn::{Modules, modules};

/// A model with two layers, one of which is used twice.
#[derive(Module, Debug)]
struct Mlp {
    fc1: Linear,
    middle: Linear,
    activation: Relu,
    again: Linear,
    dropout: Dropout,
}

#[derive(Module, Debug)]
struct Cnn {
    stem: Conv2d,
    blocks: Vec<Block>,
    head: Head,
}

#[derive(Module, Debug)]
struct Block {
    conv: Conv2d,
    norm: BatchNorm,
    skip: Option<Conv2d>,
}

#[derive(Module, Debug)]
enum Head {
    Linear(Linear),
    #[allow(dead_code, reason = "an enum of one variant would not be tested as one")]
    Other(Linear),
}

fn mlp(device: &Device) -> Mlp {
    let middle = LinearConfig::new(8, 8).init(device);
    Mlp {
        fc1: LinearConfig::new(4, 8).with_bias(false).init(device),
        again: middle.clone(),
        middle,
        activation: Relu::new(),
        dropout: DropoutConfig::new(0.1).init(),
    }
}

fn cnn(device: &Device) -> Cnn {
    let conv = |from, to| Conv2dConfig::new([from, to], [3, 3]).with_padding(PaddingConfig2d::Same).init(device);
    let block = |skip| Block { conv: conv(4, 4), norm: BatchNormConfig::new(4).init(device), skip };
    Cnn {
        stem: conv(1, 4),
        blocks: vec![block(None), block(Some(conv(4, 4)))],
        head: Head::Linear(LinearConfig::new(64, 10).init(device)),
    }
}

fn rows(modules: &Modules) -> Vec<(&str, &str, u64, u64)> {
    modules.rows().iter().map(|row| (row.path.as_str(), row.kind.as_str(), row.parameters, row.bytes)).collect()
}

#[test]
fn shared_parameters_count_once() {
    let model = mlp(&Device::flex());
    let modules = modules(&model);
    let expected = [
        ("", "Mlp", 32 + 72, 4 * (32 + 72)),
        ("fc1", "Linear", 32, 128),
        ("middle", "Linear", 72, 288),
        ("again", "Linear", 72, 288),
        ("dropout", "Dropout", 0, 0),
    ];
    assert_eq!(rows(&modules), expected, "a missing bias and an activation are not modules");
    assert_eq!(model.num_params(), 32 + 2 * 72, "Burn counts them twice");
    assert_eq!(modules.path_of(model.again.weight.id), Some("middle"), "the first");
    assert!(modules.to_string().ends_with("\n72 parameters are shared, and counted once\n"), "{modules}");
}

#[test]
fn nested_modules_are_counted_in_what_they_are_in() {
    let model = cnn(&Device::flex());
    let modules = modules(&model);
    let (stem, conv, norm, head) = (9 * 4 + 4, 9 * 16 + 4, 4 * 4, 650);
    let kinds: Vec<_> =
        rows(&modules).into_iter().map(|(path, kind, parameters, _)| (path, kind, parameters)).collect();
    let expected = [
        ("", "Cnn", stem + 3 * conv + 2 * norm + head),
        ("stem", "Conv2d", stem),
        ("blocks", "Vec", 3 * conv + 2 * norm),
        ("blocks.0", "Block", conv + norm),
        ("blocks.0.conv", "Conv2d", conv),
        ("blocks.0.norm", "BatchNorm", norm),
        ("blocks.1", "Block", 2 * conv + norm),
        ("blocks.1.conv", "Conv2d", conv),
        ("blocks.1.norm", "BatchNorm", norm),
        ("blocks.1.skip", "Conv2d", conv),
        ("head", "Head", head),
        ("head.Linear", "Linear", head),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(modules.rows()[0].parameters as usize, model.num_params());
    assert_eq!(modules.path_of(model.blocks[1].norm.gamma.id), Some("blocks.1.norm"));
    assert_eq!(modules.path_of(burn::module::ParamId::new()), None);
    assert!(!modules.to_string().contains("shared"));
}

#[test]
fn looking_at_a_model_does_not_initialize_it() {
    let model = cnn(&Device::flex());
    let lazy = modules(&model);
    assert!(!model.stem.weight.is_initialized());
    drop(model.stem.weight.val());
    assert!(model.stem.weight.is_initialized());
    assert_eq!(rows(&modules(&model)), rows(&lazy));
}

#[test]
fn bytes_are_those_of_the_elements() {
    let mut model = mlp(&Device::flex());
    model.fc1.weight = model.fc1.weight.map(|weight| weight.cast(DType::F16));
    let modules = modules(&model);
    let fc1 = modules.get("fc1").unwrap();
    assert_eq!((fc1.parameters, fc1.bytes), (32, 64));
}

#[test]
fn an_adapter_is_in_the_module_that_it_adapts() {
    let plain = LinearConfig::new(64, 32).init(&Device::flex());
    let weight = plain.weight.id;
    let adapted = plain.apply_lora(Lora::new(2, 1.0));
    let modules = modules(&adapted);
    assert_eq!(modules.rows()[0].parameters, 64 * 32 + 32 + 2 * (64 + 32));
    assert_eq!(modules.path_of(weight), Some(""));
    assert!(modules.rows().iter().any(|row| row.kind == "Reparameterization"), "{modules}");
}
