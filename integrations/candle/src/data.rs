use std::{iter::FusedIterator, panic::Location};

/// An iterator that runs each `next` in a span named [`Data::NAME`]; made by [`data`].
#[derive(Clone, Debug)]
pub struct Data<I> {
    batches: I,
    /// Where [`data`] was called: the loop that waits.
    caller: &'static Location<'static>,
}

impl Data<()> {
    /// The name of the spans.
    pub const NAME: &'static str = "data";
}

/// Wraps an iterator over batches so that the time a loop waits for data is a span: `for batch in data(loader)`.
///
/// If the span is long, load batches ahead on other threads; the span then covers only the remaining wait, and spans of
/// the loading are on the tracks of those threads. There is one more span than batches: the last one finds that there
/// are no more.
///
/// ```
/// let batches = vec![[1, 2], [3, 4]];
/// for batch in kernspan_candle::data(batches) {
///     assert_eq!(batch.len(), 2);
/// }
/// ```
#[track_caller]
pub fn data<I: IntoIterator>(batches: I) -> Data<I::IntoIter> {
    Data { batches: batches.into_iter(), caller: Location::caller() }
}

impl<I: Iterator> Iterator for Data<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let Self { batches, caller } = self;
        let span = tracing::info_span!(Data::NAME, op.location = %format_args!("{}:{}", caller.file(), caller.line()));
        span.in_scope(|| batches.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.batches.size_hint()
    }
}

impl<I: ExactSizeIterator> ExactSizeIterator for Data<I> {}

impl<I: FusedIterator> FusedIterator for Data<I> {}
