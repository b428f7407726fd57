/// The kind of data in a request. Each has its own endpoint and queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Metrics,
}
