use std::iter::FusedIterator;

/// An iterator whose every `next` is a span, [`Data::NAME`]: made by [`data`].
#[derive(Clone, Debug)]
pub struct Data<I>(I);

impl Data<()> {
    /// The name of the spans.
    pub const NAME: &'static str = "data";
}

/// Makes the time that a loop waits for its data a span: `for batch in kernspan_burn::data(loader.iter())`.
///
/// What is waited for is what counts: with a loader on threads of its own, the spans of its work are on their tracks. The last span is of
/// finding that there is no more. With the feature `train` there is `training`, which does this for a `DataLoader`, and counts the steps.
///
/// ```
/// let batches = vec![[1, 2], [3, 4]];
/// for batch in kernspan_burn::data(batches) {
///     assert_eq!(batch.len(), 2);
/// }
/// ```
pub fn data<I: IntoIterator>(batches: I) -> Data<I::IntoIter> {
    Data(batches.into_iter())
}

/// Runs what gets a batch in a span.
pub(crate) fn waiting<T>(next: impl FnOnce() -> T) -> T {
    tracing::info_span!(Data::NAME).in_scope(next)
}

impl<I: Iterator> Iterator for Data<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        waiting(|| self.0.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<I: ExactSizeIterator> ExactSizeIterator for Data<I> {}

impl<I: FusedIterator> FusedIterator for Data<I> {}
