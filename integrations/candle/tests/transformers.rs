//! Models of candle-transformers, whose own spans are created with the model, at level TRACE, and entered again in
//! every pass.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama};
use kernspan::{Collected, Profiler, ProfilerLayer, Report, Schedule, Trace, trace::Span};
use std::sync::Arc;
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

const LAYERS: usize = 2;
const RECORDED: usize = 3;

fn config() -> Config {
    Config {
        hidden_size: 32,
        intermediate_size: 64,
        vocab_size: 100,
        num_hidden_layers: LAYERS,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        use_flash_attn: false,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: None,
        max_position_embeddings: 64,
        tie_word_embeddings: false,
    }
}

/// Builds a model while the schedule waits, and generates tokens, some of which are recorded.
fn generate(profiler: &Profiler) -> Result<()> {
    let config = config();
    let model = Llama::load(VarBuilder::zeros(DType::F32, &Device::Cpu), &config)?;
    let mut cache = Cache::new(true, DType::F32, &config, &Device::Cpu)?;
    for position in 0..8 {
        let token = Tensor::new(&[[1_u32]], &Device::Cpu)?;
        tracing::info_span!("decode").in_scope(|| model.forward(&token, position, &mut cache))?;
        profiler.step();
    }
    Ok(())
}

fn recorded(subscriber: impl FnOnce(ProfilerLayer) -> tracing::Dispatch) -> Arc<Trace> {
    let collected = Collected::new();
    let schedule = Schedule::new().wait(3).warmup(1).active(RECORDED as u64).repeat(1);
    let (layer, profiler) = Profiler::builder().schedule(schedule).export(collected.clone()).build().unwrap();
    tracing::dispatcher::with_default(&subscriber(layer), || generate(&profiler)).unwrap();
    profiler.finish().unwrap();
    collected.only()
}

fn count(trace: &Trace, name: &str) -> usize {
    trace.spans().filter(|span| span.name() == name).count()
}

#[test]
fn their_spans_are_there_with_nothing_done_for_it() {
    let trace = recorded(|layer| tracing::Dispatch::new(tracing_subscriber::registry().with(layer)));
    let counts = ["decode", "block", "attn", "mlp", "attn-rot", "rms-norm", "linear"].map(|name| count(&trace, name));
    // Each layer has rotations of queries and keys, two norms, four products of attention and three of the MLP. After
    // the layers there are one norm and one product.
    assert_eq!(
        counts,
        [1, LAYERS, LAYERS, LAYERS, 2 * LAYERS, 2 * LAYERS + 1, 7 * LAYERS + 1].map(|of_one| of_one * RECORDED)
    );
    for linear in trace.spans().filter(|span| span.name() == "linear") {
        let stack: Vec<_> = linear.stack().skip(1).map(Span::name).collect();
        let known: [&[&str]; 3] = [&["attn", "block", "decode"], &["mlp", "block", "decode"], &["decode"]];
        assert!(known.contains(&stack.as_slice()), "{stack:?}");
    }
}

#[test]
fn each_enter_is_a_call() {
    let trace = recorded(|layer| tracing::Dispatch::new(tracing_subscriber::registry().with(layer)));
    let rows = Report::of([&*trace]).averages().rows();
    for (name, of_one) in [("decode", 1), ("attn", LAYERS), ("attn-rot", 2 * LAYERS), ("linear", 7 * LAYERS + 1)] {
        let row = rows.iter().find(|row| row.name == name).unwrap();
        let calls = (of_one * RECORDED) as u64;
        assert_eq!((row.calls, row.enters, row.latency), (calls, calls, None), "{name}");
    }
}

#[test]
fn a_filter_of_what_is_printed_leaves_them_alone() {
    let trace = recorded(|layer| {
        let printed = fmt::layer().with_writer(std::io::sink).with_filter(EnvFilter::new("info"));
        tracing::Dispatch::new(tracing_subscriber::registry().with(layer).with(printed))
    });
    assert_eq!(count(&trace, "attn"), LAYERS * RECORDED);
}

#[test]
fn a_filter_for_all_has_to_let_them_through() {
    let under = |filter: &str| {
        let filter = EnvFilter::new(filter);
        recorded(|layer| tracing::Dispatch::new(tracing_subscriber::registry().with(filter).with(layer)))
    };
    let trace = under("info,candle_transformers=trace");
    assert_eq!((count(&trace, "decode"), count(&trace, "attn")), (RECORDED, LAYERS * RECORDED));
    let trace = under("trace");
    assert_eq!(count(&trace, "attn"), LAYERS * RECORDED);
    let trace = under("info");
    assert_eq!((count(&trace, "decode"), count(&trace, "attn")), (RECORDED, 0));
}
