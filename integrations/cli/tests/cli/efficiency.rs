//! What a model and a setting achieve for what they cost.

use crate::{printed, printed_json, window};

#[test]
fn modules_of_a_real_model_have_parameters_flops_and_memory() {
    let json = printed_json("report --model --json", &[&window("candle")]);
    let traces = kernspan::read(window("candle")).unwrap();
    let spans = || traces.iter().flat_map(kernspan::Trace::spans);
    let of_module = |path: &str| spans().filter(move |span| span.fields().op().module() == Some(path)).count();
    let modules = json["modules"].as_array().unwrap();
    assert_eq!(modules.len(), 2);
    for (module, path) in modules.iter().zip(["layers.0", "layers.1"]) {
        assert_eq!((&module["module"], &module["passes"]), (&path.into(), &of_module(path).into()));
        // A linear layer of 64 inputs and outputs, with a bias.
        assert_eq!((&module["parameters"], &module["parameter_bytes"]), (&4160.into(), &(4 * 4160).into()));
        let flops = module["flops"].as_f64().unwrap() / module["passes"].as_f64().unwrap() / 4160.0;
        assert_eq!(module["flops_per_parameter"], flops);
        assert!(module["gpu"].as_u64() > Some(0) && module["gpu_memory"].as_i64() > Some(0), "{module}");
    }
    assert_eq!(json["parameters"], 2 * 4160);
    let text = printed("report --model --width 120", &[&window("candle")]);
    assert!(text.contains("\nlayers.0 ") && text.ends_with("\nthe model has 8.320k parameters\n"), "{text}");
    let none = printed("report --model", &[&window("training")]);
    assert_eq!(none, "no modules were recorded: no span has the field op.module\n");
}
