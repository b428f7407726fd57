//! The service: `POST /complete/{tokens}` with a prompt generates so many bytes after it. Each request is a span.

use crate::batcher::{Generated, Job};
use axum::{
    Router,
    body::Bytes,
    extract::{MatchedPath, Path, Request, State},
    http::StatusCode,
    middleware::{Next, from_fn},
    response::Response,
    routing::post,
};
use std::sync::mpsc::Sender;
use tokio::sync::mpsc::unbounded_channel;
use tracing::{Instrument, Span, field::Empty, info_span};

/// The header in which a client says when it meant to send a request, in nanoseconds since 1970.
pub(crate) const INTENDED_START: &str = "x-intended-start";
/// The most tokens that a client may ask for.
const MOST_TOKENS: usize = 10_000;

pub(crate) fn router(jobs: Sender<Job>) -> Router {
    Router::new().route("/complete/{tokens}", post(complete)).route_layer(from_fn(in_a_span)).with_state(jobs)
}

/// Handles a request in its span.
async fn in_a_span(request: Request, next: Next) -> Response {
    // Not the path: each value would be a group of its own.
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let span = info_span!(
        "request",
        http.route = route,
        request.intended_start = Empty,
        gen_ai.usage.input_tokens = Empty,
        http.response.status_code = Empty,
    );
    let header = request.headers().get(INTENDED_START);
    if let Some(nanos) = header.and_then(|value| value.to_str().ok()?.parse::<u64>().ok()) {
        span.record("request.intended_start", nanos);
    }
    let response = next.run(request).instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    response
}

async fn complete(jobs: State<Sender<Job>>, count: Path<usize>, prompt: Bytes) -> Result<Vec<u8>, StatusCode> {
    if *count > MOST_TOKENS {
        return Err(StatusCode::BAD_REQUEST);
    }
    let (tokens, mut generated) = unbounded_channel();
    let request = Span::current();
    request.record("gen_ai.usage.input_tokens", prompt.len());
    let job = Job { prompt: prompt.to_vec(), count: *count, tokens, request: request.id() };
    jobs.send(job).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let mut text = Vec::with_capacity(*count);
    while text.len() < *count {
        let Generated { token, batch_size } = generated.recv().await.ok_or(StatusCode::INTERNAL_SERVER_ERROR)?;
        tracing::info!(request.tokens = 1, request.batch_size = batch_size);
        text.push(token);
    }
    Ok(text)
}
