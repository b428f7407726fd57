//! The thread with the model. It computes the requests that wait together, up to a limit.

use crate::model::Model;
use candle_core::Result;
use std::{
    error::Error,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};
use tokio::sync::mpsc::UnboundedSender;
use tracing::{Id, info_span};

/// The most requests that are computed together.
const LARGEST_BATCH: usize = 8;
/// The length of a prompt. Shorter ones are padded; of longer ones, the end counts.
const PROMPT: usize = 16;

/// A prompt for the model, of one request.
pub(crate) struct Job {
    pub(crate) prompt: Vec<u8>,
    /// The number of tokens to generate.
    pub(crate) count: usize,
    /// Where the tokens go. It is dropped early if the model fails.
    pub(crate) tokens: UnboundedSender<Generated>,
    /// The span of the request. A clone of the span itself would keep the request open until the whole batch is done.
    pub(crate) request: Option<Id>,
}

/// A token for a request.
pub(crate) struct Generated {
    pub(crate) token: u8,
    /// The number of requests that were computed together.
    pub(crate) batch_size: usize,
}

/// Starts the thread. It ends when the sender is dropped.
///
/// # Errors
///
/// If the model or the thread fails.
pub(crate) fn start(model: Model) -> std::result::Result<Sender<Job>, Box<dyn Error>> {
    // On a GPU, the first use of each kernel takes long. No request has to wait for that.
    for size in [1, LARGEST_BATCH] {
        model.decode(&model.prefill(&vec![[b' '; PROMPT]; size])?)?;
    }
    let (sender, jobs) = channel();
    thread::Builder::new().name("model".to_owned()).spawn(move || run(&model, &jobs))?;
    Ok(sender)
}

fn run(model: &Model, jobs: &Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        let mut batch = vec![first];
        batch.extend(jobs.try_iter().take(LARGEST_BATCH - 1));
        let span = info_span!("batch", size = batch.len());
        for job in &batch {
            // On a GPU, this gives each request its share of the batch's time.
            span.follows_from(job.request.clone());
        }
        if let Err(error) = span.in_scope(|| generate(model, &batch)) {
            tracing::error!(%error, "the model failed");
        }
    }
}

fn generate(model: &Model, batch: &[Job]) -> Result<()> {
    let prompts: Vec<_> = batch.iter().map(|job| padded(&job.prompt)).collect();
    let mut state = model.prefill(&prompts)?;
    let longest = batch.iter().map(|job| job.count).max().unwrap_or(0);
    for index in 0..longest {
        let (tokens, next) = model.decode(&state)?;
        state = next;
        for (job, token) in batch.iter().zip(tokens).filter(|(job, _)| index < job.count) {
            // A client that has gone wants no more tokens.
            let _ = job.tokens.send(Generated { token, batch_size: batch.len() });
        }
    }
    Ok(())
}

fn padded(prompt: &[u8]) -> [u8; PROMPT] {
    let mut padded = [b' '; PROMPT];
    let end = &prompt[prompt.len().saturating_sub(PROMPT)..];
    padded[PROMPT - end.len()..].copy_from_slice(end);
    padded
}
