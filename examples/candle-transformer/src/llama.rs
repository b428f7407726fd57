use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::{Init, VarBuilder, var_builder::SimpleBackend};
use candle_transformers::models::llama::{Cache, Config, Llama};
use kernspan_candle::flops;
use tracing::info_span;

/// A Llama with random weights. Spans of its parts are candle-transformers' own, and in the trace without anything done for it.
pub(crate) struct Model {
    llama: Llama,
    config: Config,
    dtype: DType,
    device: Device,
    /// Without tokens: each prompt starts with a copy.
    cache: Cache,
}

/// A prompt and what followed, as far as the model has seen it.
pub(crate) struct Prompt {
    cache: Cache,
    /// Tokens in the cache.
    length: usize,
}

impl Model {
    /// How many tokens a prompt and what follows may have.
    pub(crate) const MOST_TOKENS: usize = 2048;

    pub(crate) fn new(device: &Device) -> Result<Self> {
        let (config, dtype) = if device.is_cpu() { (small(), DType::F32) } else { (tiny_llama(), DType::BF16) };
        let vb = VarBuilder::from_backend(Box::new(RandomWeights), dtype, device.clone());
        let cache = Cache::new(true, dtype, &config, device)?;
        Ok(Self { llama: Llama::load(vb, &config)?, config, dtype, device: device.clone(), cache })
    }

    /// Tokens that it knows.
    pub(crate) fn vocabulary(&self) -> u32 {
        self.config.vocab_size as u32
    }

    pub(crate) fn prompt(&self) -> Prompt {
        Prompt { cache: self.cache.clone(), length: 0 }
    }

    /// The token that is most likely to follow these, which follow those of the prompt.
    ///
    /// The model is not a `Module`, as it takes a cache; so there is no `Traced` around it but a span, with the fields that tables
    /// know. The token is read back here, as whoever waits for it would do. That waits for the GPU: the span is as long as the
    /// token took, and `sample` inside it as long as the host had to wait.
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

    /// Floating-point operations to take in `tokens` after `before` others, counted as `kernspan_candle::flops` does:
    ///
    /// - 2 · tokens · weights, of the matrices in the layers: queries and output are h × h, keys and values h × h · kv heads ÷ heads, and
    ///   the three of the MLP h × i;
    /// - 2 · h · vocabulary once, as logits are only made for the last token; the embedding copies rows;
    /// - for each layer and head, tokens · (before + tokens) scores, each 2 · head size for q · kᵀ, as many for its part of the
    ///   product with v, and 6 for scale and softmax. Both halves of the causal mask are computed.
    ///
    /// Norms, rotations and activations are left out: less than a percent.
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

/// The size of TinyLlama 1.1B.
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
        max_position_embeddings: Model::MOST_TOKENS,
        tie_word_embeddings: false,
    }
}

/// One for two cores.
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

/// Weights as they are before training.
///
/// Not a `VarMap`: its variables make Candle keep what gradients would need, and so every step that the cached values came from.
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

    /// Why there is a model of our own to train. Should this fail, there is no need for it any more.
    #[test]
    fn it_cannot_be_trained() -> Result<()> {
        let config = Config { num_hidden_layers: 1, ..small() };
        let variables = VarMap::new();
        let llama = Llama::load(VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu), &config)?;
        let tokens = Tensor::new(&[[1_u32, 2, 3]], &Device::Cpu)?;
        let logits = llama.forward(&tokens, 0, &mut Cache::new(false, DType::F32, &config, &Device::Cpu)?)?;
        let gradients = logits.sqr()?.sum_all()?.backward()?;
        let learning = variables.all_vars().iter().filter(|variable| gradients.get(variable).is_some()).count();
        // The last matrix, behind the last norm.
        assert_eq!(learning, 1);
        Ok(())
    }
}
