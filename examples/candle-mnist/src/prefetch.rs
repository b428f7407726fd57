//! Batches that other threads make in advance.

use std::{sync::mpsc, thread};

/// The number of batches that may wait for the training.
const AHEAD: usize = 8;

/// Returns the items of all sources, in the order in which they come. Each source has a thread of its own.
pub(crate) fn prefetch<S>(sources: impl IntoIterator<Item = S>) -> impl Iterator<Item = S::Item>
where
    S: Iterator<Item: Send + 'static> + Send + 'static,
{
    let (sender, receiver) = mpsc::sync_channel(AHEAD);
    for source in sources {
        let sender = sender.clone();
        // A thread ends when the training has dropped its end of the channel.
        thread::spawn(move || source.into_iter().try_for_each(|item| sender.send(item).ok()));
    }
    receiver.into_iter()
}
