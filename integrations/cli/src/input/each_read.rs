//! Reads several files at a time.

use kernspan::read::ReadError;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

/// Reads files on as many threads as the machine has, and calls `each` with what was read of each file, in order.
pub(super) fn each_read<T: Send>(
    files: &[PathBuf],
    read: impl Fn(&Path) -> Result<T, ReadError> + Sync,
    mut each: impl FnMut(&PathBuf, Result<T, ReadError>),
) {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(files.len());
    if threads < 2 {
        return files.iter().for_each(|path| each(path, read(path)));
    }
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (send, next, read) = (send.clone(), &next, &read);
            scope.spawn(move || {
                let index = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < files.len());
                while let Some(index) = index() {
                    if send.send((index, read(&files[index]))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let (mut waiting, mut due) = (BTreeMap::new(), 0);
        for (index, what) in receive {
            waiting.insert(index, what);
            while let Some(what) = waiting.remove(&due) {
                each(&files[due], what);
                due += 1;
            }
        }
    });
}
