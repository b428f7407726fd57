use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::{Init, VarBuilder, var_builder::SimpleBackend};
use candle_transformers::models::llama::{Cache, Config, Llama};
use kernspan_candle::flops;
use tracing::info_span;

/// A Llama with random weights. Its parts have spans of candle-transformers, which are in the trace without further
/// code.
pub(crate) struct Model {
    llama: Llama,
    config: Config,
    dtype: DType,
    device: Device,
    /// An empty cache; each prompt starts with a copy.
    cache: Cache,
}

/// The state of a prompt and its completion.
pub(crate) struct Prompt {
    cache: Cache,
    /// The number of tokens in the cache.
    length: usize,
}

impl Model {
    /// The most tokens of a prompt and its completion together.
    pub(crate) const MAX_TOKENS: usize = 2048;

    pub(crate) fn new(device: &Device) -> Result<Self> {
        let (config, dtype) = if device.is_cpu() { (small(), DType::F32) } else { (tiny_llama(), DType::BF16) };
        let vb = VarBuilder::from_backend(Box::new(RandomWeights), dtype, device.clone());
        let cache = Cache::new(true, dtype, &config, device)?;
        Ok(Self { llama: Llama::load(vb, &config)?, config, dtype, device: device.clone(), cache })
    }

    /// Returns the number of different tokens.
    pub(crate) fn vocabulary(&self) -> u32 {
        self.config.vocab_size as u32
    }

    pub(crate) fn prompt(&self) -> Prompt {
        Prompt { cache: self.cache.clone(), length: 0 }
    }

    /// Appends tokens to a prompt and returns the most likely next token.
    ///
    /// The model takes a cache and so is not a `Module`; instead of a `Traced` it has a span with the fields that the
    /// report's tables use. Reading the token back waits for the GPU, so the span covers the whole latency of the
    /// token, and `sample` in it the wait of the host.
    pub(crate) fn next(&self, tokens: &[u32], prompt: &mut Prompt) -> Result<u32> {
        let (flops, dtype) = (self.flops(tokens.len(), prompt.length), self.dtype.as_str());
        let span = if prompt.length == 0 {
            info_span!("prefill", tokens = tokens.len(), op.flops = flops, op.dtype.input = dtype)
        } else {
            info_span!("decode", tokens = tokens.len(), op.flops = flops, op.dtype.input = dtype)
        };
        let _entered = span.entered();
        let input = Tensor::new(tokens, &self.device)?.unsqueeze(0)?;
        let logits = self.llama.forward(&input, prompt.length, &mut prompt.cache)?;
        prompt.length += tokens.len();
        info_span!("sample").in_scope(|| logits.squeeze(0)?.argmax(0)?.to_scalar())
    }

    /// Returns the FLOPs of a pass over `tokens` tokens after `before` others, counted as in `kernspan_candle::flops`:
    ///
    /// - 2 · tokens · weights for the matrices of the layers. Those of queries and output are h × h, of keys and values
    ///   h × h · kv heads ÷ heads, and the three of the MLP h × i.
    /// - 2 · h · vocabulary once, because only the last token has logits. The embedding copies rows.
    /// - For each layer and head, tokens · (before + tokens) scores: 2 · head size for q · kᵀ, the same for the product
    ///   with v, and 6 for scale and softmax. Both halves of the causal mask are computed.
    ///
    /// Norms, rotations and activations are less than a percent, and are left out.
    fn flops(&self, tokens: usize, before: usize) -> u64 {
        let Config { hidden_size, intermediate_size, num_hidden_layers, vocab_size, .. } = self.config;
        let (heads, kv_heads) = (self.config.num_attention_heads, self.config.num_key_value_heads);
        let head = hidden_size / heads;
        let weights = 2 * hidden_size * (hidden_size + head * kv_heads) + 3 * hidden_size * intermediate_size;
        let attention = flops::attention_of((heads * tokens) as u64, (before + tokens) as u64, head as u64);
        let products = 2 * tokens * weights * num_hidden_layers + 2 * hidden_size * vocab_size;
        num_hidden_layers as u64 * attention + products as u64
    }
}

/// Returns the size of TinyLlama 1.1B.
fn tiny_llama() -> Config {
    Config {
        hidden_size: 2048,
        intermediate_size: 5632,
        vocab_size: 32000,
        num_hidden_layers: 22,
        num_attention_heads: 32,
        num_key_value_heads: 4,
        use_flash_attn: false,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: None,
        max_position_embeddings: Model::MAX_TOKENS,
        tie_word_embeddings: false,
    }
}

/// Returns a size that two CPU cores can run.
fn small() -> Config {
    Config {
        hidden_size: 256,
        intermediate_size: 704,
        vocab_size: 4000,
        num_hidden_layers: 4,
        num_attention_heads: 8,
        num_key_value_heads: 2,
        ..tiny_llama()
    }
}

/// A source of random weights, as they are before training.
///
/// It is not a `VarMap`, because with variables Candle keeps the graph for gradients, and the cache would keep all
/// earlier steps.
struct RandomWeights;

impl SimpleBackend for RandomWeights {
    fn get(&self, shape: Shape, _: &str, init: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        Ok(init.var(shape, dtype, device)?.as_detached_tensor())
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        candle_core::bail!("the shape of {name} is not known")
    }

    fn contains_tensor(&self, _: &str) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Config, Model, small};
    use candle_core::{DType, Device, Result, Tensor};
    use candle_nn::{VarBuilder, VarMap};
    use candle_transformers::models::llama::{Cache, Llama};

    #[test]
    fn flops_are_those_of_the_products() -> Result<()> {
        let model = Model::new(&Device::Cpu)?;
        let (h, kv, i, layers, vocabulary) = (256, 64, 704, 4, 4000);
        let products = 2 * 10 * (h * h + h * kv + h * kv + h * h + 3 * h * i);
        let scores = 8 * 10 * (5 + 10);
        let expected = layers * (products + scores * (2 * 32 + 6 + 2 * 32)) + 2 * h * vocabulary;
        assert_eq!(model.flops(10, 5), expected);
        Ok(())
    }

    #[test]
    fn it_goes_on_from_what_is_cached() -> Result<()> {
        let model = Model::new(&Device::Cpu)?;
        let (mut whole, mut parts) = (model.prompt(), model.prompt());
        model.next(&[1, 2, 3], &mut parts)?;
        assert_eq!(model.next(&[4], &mut parts)?, model.next(&[1, 2, 3, 4], &mut whole)?);
        Ok(())
    }

    /// The reason for a separate model in `gpt.rs`. If this test fails, that model is not needed any more.
    #[test]
    fn it_cannot_be_trained() -> Result<()> {
        let config = Config { num_hidden_layers: 1, ..small() };
        let variables = VarMap::new();
        let llama = Llama::load(VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu), &config)?;
        let tokens = Tensor::new(&[[1_u32, 2, 3]], &Device::Cpu)?;
        let logits = llama.forward(&tokens, 0, &mut Cache::new(false, DType::F32, &config, &Device::Cpu)?)?;
        let gradients = logits.sqr()?.sum_all()?.backward()?;
        let learning = variables.all_vars().iter().filter(|variable| gradients.get(variable).is_some()).count();
        // Only the last matrix, which is after the last norm, has a gradient.
        assert_eq!(learning, 1);
        Ok(())
    }
}
