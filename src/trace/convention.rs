//! Names of fields with a defined meaning, shared by hand-written spans and integrations.
//!
//! | field | on | meaning |
//! |---|---|---|
//! | `counter.NAME` | events | a sample of the counter `NAME`; any number |
//! | `counter.samples` | events | the number of samples in the step, from which exporters compute the throughput |
//! | `counter.tokens` | events | the number of tokens in the step, by which the report divides the energy |
//! | `op.name` | spans | the name of the span, in place of the one in the source, which must be a constant |
//! | `op.module` | spans | the path of the module in its model, such as `layers.0.attention` |
//! | `op.shape.ARG` | spans, operations | the shape of argument `ARG`, such as `[64, 512]`; `output` is the result |
//! | `op.dtype.ARG` | spans, operations | the element type of the argument, such as `f32` |
//! | `op.compute` | spans, operations | the type used for computing, if it is not the element type, such as `tf32` |
//! | `op.device` | spans, operations | the device it ran on, such as `cuda:0` |
//! | `op.parameters`, `op.parameter_bytes` | spans | the number of parameters of the module, and their size in bytes |
//! | `op.flops` | spans, operations | floating-point operations done |
//! | `op.bytes` | spans, operations | bytes moved |
//! | `op.input` | spans | the stage of the input pipeline: `read`, `preprocess`, `enqueue`, or `load` for all of it |
//! | `op.wait` | spans | what the span waits for while it does nothing itself: `lock`, `sleep`, or anything else |
//! | `op.location` | spans | the place in the source that the span stands for, if it is not where the span is written |
//! | `op.gemm` | spans, operations | the size of the matrix product, m×n×k, such as `64x512x512` |
//! | `request.intended_start` | requests | when the request was to start, in nanoseconds since 1970 (UTC) |
//! | `request.tokens` | events in requests | the number of tokens that were generated just now |
//! | `request.batch_size` | requests, events in them | the number of requests that were computed together |
//! | `error` | requests, events in them | the request has failed, unless the value is `false`, `0` or empty |
//! | `otel.status_code` | requests | the request has failed if the value is `ERROR` |
//! | `http.response.status_code` | requests | the request has failed if the value is 500 to 599 |
//! | `gen_ai.usage.input_tokens` | requests | the number of tokens that the request reads |
//! | `gen_ai.usage.output_tokens` | requests | the number of tokens that the request has generated |
//! | `collective.operation` | spans | the span is a collective, such as `all-reduce`, `broadcast` or `send` |
//! | `collective.group` | spans | the name of the group of ranks, the same on all of them |
//! | `collective.ranks` | spans | the number of ranks in the group |
//! | `collective.bytes` | spans | the size of the larger one of a rank's input and output |
//! | `collective.root` | spans | the rank that sends to all others, or receives from them |
//! | `collective.peer` | spans | the rank that a `send` is for, or that a `receive` is from |
//!
//! Spans with `collective.operation` are collectives to `kernspan ranks`, for programs without NCCL. A span that
//! launches kernels of NCCL describes these.
//!
//! Requests are spans that [`serving`](crate#features) counts. The names of their fields are those of OpenTelemetry
//! where it has any. An event with `error` is one of the innermost span that it happens in, such as that of
//! `#[instrument(err)]`: an error in a span inside a request may be handled there.
//!
//! Without `op.input`, a span is a `load` if its name says so, whatever its capitals and separators: `data`,
//! `next_batch`, `load_batch`, `get_batch`, `fetch_batch`, `read_batch`, `recv_batch`, `receive_batch`, `make_batch`,
//! `build_batch`, `prepare_batch`, `sample_batch`, `wait_for_batch`, `batch_load`, `batch_loading`, `data_load`,
//! `data_loader`, `data_loading`, `load_data`, `get_data`, `fetch_data`, `read_data`, `prepare_data`, `load_images`,
//! `decode_images`, `input_pipeline`, `preprocess`, `preprocessing`, `augment`, `augmentation`, `collate`,
//! `collate_fn`, `prefetch`; PyTorch's `enumerate(DataLoader)#…` and `enumerate(DataPipe)#…`; Lightning's
//! `….train_dataloader_next`; and `next`, `get`, `fetch`, `load`, `read` or `recv` in a module or on a type called
//! `data`, `data_loader`, `data_iter`, `dataset`, `loader` or `batches`, such as `DataLoader::next`. Any other value of
//! `op.input`, such as `none`, says that the span is not part of the pipeline.
//!
//! Without `op.wait`, [`FindingKind::HostWait`](crate::analysis::FindingKind::HostWait) goes by words in the name, such
//! as `lock` and `wait`; `none` says that the span does not wait. Operations are [`Operation`](super::Operation)s,
//! which frameworks report.
//!
//! ```
//! # let (batch, input, output) = (64_u64, 512_u64, 512_u64);
//! let span = tracing::trace_span!(
//!     "linear",
//!     op.shape.input = ?[batch, input],
//!     op.dtype.input = "f32",
//!     op.flops = 2 * batch * input * output,
//! );
//! tracing::info!(counter.loss = 0.25);
//! ```

/// The prefix of fields that are samples of counters.
pub const COUNTER: &str = "counter.";
/// The counter for the number of samples, images or tokens in a step. Exporters compute the throughput from it.
///
/// ```
/// use kernspan::{export::StepSummary, trace::convention};
///
/// fn throughput(step: &StepSummary) -> Option<f64> {
///     Some(step.counter(convention::SAMPLES)? / step.duration.as_secs_f64())
/// }
///
/// tracing::info!(counter.samples = 64);
/// ```
pub const SAMPLES: &str = "samples";
/// The counter for the number of tokens in a step.
pub const TOKENS: &str = "tokens";
/// The name of a span.
pub const NAME: &str = "op.name";
/// The path of a module in its model.
pub const MODULE: &str = "op.module";
/// The number of parameters of a module, with those of the modules inside it.
pub const PARAMETERS: &str = "op.parameters";
/// The size of a module's parameters in bytes.
pub const PARAMETER_BYTES: &str = "op.parameter_bytes";
/// The prefix of the shapes of arguments.
pub const SHAPE: &str = "op.shape.";
/// The prefix of the element types of arguments.
pub const DTYPE: &str = "op.dtype.";
/// The type used for computing an operation.
pub const COMPUTE: &str = "op.compute";
/// The name of the result among the arguments.
pub const OUTPUT: &str = "output";
/// The number of floating-point operations done.
pub const FLOPS: &str = "op.flops";
/// The number of bytes moved.
pub const BYTES: &str = "op.bytes";
/// The stage of the input pipeline that a span represents.
pub const INPUT: &str = "op.input";
/// What a span waits for.
pub const WAIT: &str = "op.wait";
/// The place in the source that a span stands for, as `src/main.rs:12`, such as the caller of a function that makes the
/// span.
pub const LOCATION: &str = "op.location";
/// The size of a matrix product.
pub const GEMM: &str = "op.gemm";
/// When a request was to start, in nanoseconds since 1970 (UTC).
pub const REQUEST_INTENDED_START: &str = "request.intended_start";
/// The number of tokens that a request has generated just now.
pub const REQUEST_TOKENS: &str = "request.tokens";
/// The number of requests that are computed together.
pub const REQUEST_BATCH_SIZE: &str = "request.batch_size";
/// The error that a request has failed with.
pub const REQUEST_ERROR: &str = "error";
/// The status of a span in OpenTelemetry.
pub const OTEL_STATUS_CODE: &str = "otel.status_code";
/// The status of an HTTP response, as OpenTelemetry names it.
pub const HTTP_STATUS_CODE: &str = "http.response.status_code";
/// The number of tokens that a request reads, as OpenTelemetry names it.
pub const REQUEST_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// The number of tokens that a request has generated, as OpenTelemetry names it.
pub const REQUEST_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// The operation of a collective, such as `all-reduce`.
///
/// ```
/// let span = tracing::info_span!(
///     "sync_gradients",
///     collective.operation = "all-reduce",
///     collective.group = "world",
///     collective.ranks = 8,
///     collective.bytes = 4 << 20,
/// );
/// # drop(span);
/// ```
pub const COLLECTIVE_OPERATION: &str = "collective.operation";
/// The name of a collective's group of ranks.
pub const COLLECTIVE_GROUP: &str = "collective.group";
/// The number of ranks in a collective's group.
pub const COLLECTIVE_RANKS: &str = "collective.ranks";
/// The size of a collective in bytes.
pub const COLLECTIVE_BYTES: &str = "collective.bytes";
/// The rank that sends to all others, or receives from them.
pub const COLLECTIVE_ROOT: &str = "collective.root";
/// The other rank of a `send` or `receive`.
pub const COLLECTIVE_PEER: &str = "collective.peer";
