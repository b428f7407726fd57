//! Which spans are a training loop's waits for its input.

use crate::trace::Span;

/// Whether a span is the time that data is loaded in: readers that have a word for it say how much of a step that is.
pub(super) fn is_data_loading(span: Span<'_>) -> bool {
    span.name() == "data"
}

#[cfg(test)]
mod tests {
    use super::is_data_loading;
    use crate::trace::sample::gpu_trace;

    #[test]
    fn what_is_called_data_is_data_loading() {
        let mut trace = gpu_trace();
        trace.callsites[1].name = "data".into();
        let loading: Vec<_> =
            trace.spans().filter(|span| is_data_loading(*span)).map(|span| span.id().index()).collect();
        assert_eq!(loading, [1, 4]);
    }
}
