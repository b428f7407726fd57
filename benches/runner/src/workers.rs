//! Threads that prepare batches ahead of the training loop.

use std::sync::mpsc;

/// Starts one thread for each of these functions, which prepare a batch at each call, and returns a function that
/// receives the next batch of any of them.
///
/// # Panics
///
/// The returned function panics if all threads have.
pub fn spawn<T: Send + 'static, P: FnMut() -> T + Send + 'static>(prepare: Vec<P>) -> impl FnMut() -> T {
    let (sender, receiver) = mpsc::sync_channel(2 * prepare.len());
    for mut prepare in prepare {
        let sender = sender.clone();
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        // A worker ends when the receiver is dropped.
        let work = move || while sender.send(prepare()).is_ok() {};
        std::thread::spawn(move || tracing::dispatcher::with_default(&dispatch, work));
    }
    move || receiver.recv().expect("a batch")
}
