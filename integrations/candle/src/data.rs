use std::iter::FusedIterator;

/// An iterator whose every `next` is a span, [`Data::NAME`]: made by [`data`].
#[derive(Clone, Debug)]
pub struct Data<I>(I);

impl Data<()> {
    /// The name of the spans.
    pub const NAME: &'static str = "data";
}

/// Makes the time that a loop waits for its data a span: `for batch in kernspan_candle::data(loader)`.
///
/// If the span is short in each step and the GPU is idle, look elsewhere; if it is long, load ahead, on other threads. What is waited for is
/// what counts: with a loader on threads of its own, the spans of its work are on their tracks. The last span is of finding that there is no more.
///
/// ```
/// let batches = vec![[1, 2], [3, 4]];
/// for batch in kernspan_candle::data(batches) {
///     assert_eq!(batch.len(), 2);
/// }
/// ```
pub fn data<I: IntoIterator>(batches: I) -> Data<I::IntoIter> {
    Data(batches.into_iter())
}

impl<I: Iterator> Iterator for Data<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        tracing::info_span!(Data::NAME).in_scope(|| self.0.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<I: ExactSizeIterator> ExactSizeIterator for Data<I> {}

impl<I: FusedIterator> FusedIterator for Data<I> {}
