//! A language model of bytes: an embedding, an LSTM and a linear layer. Its weights are zero, so that nothing is
//! downloaded; its text makes no sense, but takes the usual time.

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::{Embedding, LSTM, Linear, Module, RNN, VarBuilder, embedding, linear, lstm, rnn::LSTMState};

/// The number of tokens: all bytes.
const TOKENS: usize = 256;
/// The size of the LSTM's state: on a CPU, a token of a few requests takes about a millisecond.
const SIZE: usize = 512;

/// A language model of bytes.
pub(crate) struct Model {
    embedding: Embedding,
    lstm: LSTM,
    head: Linear,
    device: Device,
}

impl Model {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        // Not variables, which would keep every operation for a backward pass.
        let builder = VarBuilder::zeros(DType::F32, device);
        Ok(Self {
            embedding: embedding(TOKENS, SIZE, builder.pp("embedding"))?,
            lstm: lstm(SIZE, SIZE, Default::default(), builder.pp("lstm"))?,
            head: linear(SIZE, TOKENS, builder.pp("head"))?,
            device: device.clone(),
        })
    }

    /// Reads prompts. Returns the state after them.
    #[tracing::instrument(skip_all)]
    pub(crate) fn prefill<const LENGTH: usize>(&self, prompts: &[[u8; LENGTH]]) -> Result<LSTMState> {
        let tokens = Tensor::from_slice(prompts.as_flattened(), (prompts.len(), LENGTH), &self.device)?;
        let mut states = self.lstm.seq(&self.embedding.forward(&tokens)?)?;
        states.pop().map_or_else(|| self.lstm.zero_state(prompts.len()), Ok)
    }

    /// Generates the next token of each sequence. Returns the tokens and the state after them.
    #[tracing::instrument(skip_all)]
    pub(crate) fn decode(&self, state: &LSTMState) -> Result<(Vec<u8>, LSTMState)> {
        let logits = self.head.forward(&state.h)?;
        let tokens = logits.argmax(D::Minus1)?;
        let state = self.lstm.step(&self.embedding.forward(&tokens)?, state)?;
        let tokens = tokens.to_vec1::<u32>()?;
        Ok((tokens.into_iter().map(|token| token as u8).collect(), state))
    }
}
