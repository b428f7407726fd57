//! The bytes of a file, read in blocks, by another thread if there are several.

use super::ReadError;
use crate::thread::mute_this_thread;
use std::{
    io::{self, Read},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{Builder, Scope},
};

/// The block size in bytes: far larger than an event, since events that cross the edge of two blocks are scanned twice,
/// and small enough that a block is still in the processor's cache when it is scanned.
pub(super) const BLOCK: usize = 256 << 10;

/// The number of blocks that may wait to be scanned. More would only take memory, since the slower of the two threads
/// sets the pace.
const WAITING: usize = 4;

/// A part of a document's text, of about as many bytes as requested.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) text: String,
    /// The number of line feeds in it.
    pub(super) lines: usize,
}

/// The blocks of a document's text, in order.
pub(super) trait Blocks {
    /// Returns the next block, reusing the memory of the one passed in. `None` at the end.
    fn next(&mut self, spent: Block) -> Result<Option<Block>, ReadError>;
}

/// The blocks of a reader's text, which are read and checked on demand.
#[derive(Debug)]
pub(super) struct ReaderBlocks<R> {
    reader: R,
    size: usize,
    /// The maximum number of bytes to read.
    most: u64,
    /// The number of bytes before the next block.
    offset: usize,
    /// The start of a character whose end is in the next block.
    split: Vec<u8>,
}

impl<R: Read> ReaderBlocks<R> {
    pub(super) fn new(reader: R, size: usize, most: u64) -> Self {
        Self { reader, size, most, offset: 0, split: Vec::new() }
    }
}

impl<R: Read> Blocks for ReaderBlocks<R> {
    fn next(&mut self, spent: Block) -> Result<Option<Block>, ReadError> {
        let mut bytes = spent.text.into_bytes();
        bytes.clear();
        bytes.append(&mut self.split);
        let wanted = bytes.len() + self.size;
        fill(&mut self.reader, &mut bytes, wanted)?;
        let is_last = bytes.len() < wanted;
        if bytes.is_empty() {
            return Ok(None);
        }
        // Checked by block, which is faster than by string.
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let wrong = error.utf8_error();
                let valid = wrong.valid_up_to();
                if wrong.error_len().is_some() || is_last {
                    return Err(ReadError::NotUtf8 { offset: self.offset + valid });
                }
                let mut bytes = error.into_bytes();
                self.split.extend(bytes.drain(valid..));
                String::from_utf8(bytes).map_err(|_| ReadError::NotUtf8 { offset: self.offset })?
            }
        };
        self.offset += text.len();
        if self.offset as u64 > self.most {
            return Err(ReadError::TooLarge);
        }
        Ok(Some(Block { lines: line_feeds(text.as_bytes()), text }))
    }
}

/// The blocks of another thread, which reads and checks ahead.
#[derive(Debug)]
pub(super) struct ThreadBlocks {
    full: Receiver<Result<Block, ReadError>>,
    spent: SyncSender<Block>,
}

impl ThreadBlocks {
    /// Starts the thread. It ends when it has read everything, or when this is dropped.
    pub(super) fn start<'scope, B: Blocks + Send + 'scope>(
        scope: &'scope Scope<'scope, '_>,
        mut blocks: B,
    ) -> io::Result<Self> {
        let (to_scan, full) = sync_channel(WAITING);
        let (spent, to_fill) = sync_channel(WAITING);
        Builder::new().name("kernspan-read".to_owned()).spawn_scoped(scope, move || {
            mute_this_thread();
            while let Some(block) = blocks.next(to_fill.try_recv().unwrap_or_default()).transpose() {
                let is_error = block.is_err();
                if to_scan.send(block).is_err() || is_error {
                    break;
                }
            }
        })?;
        Ok(Self { full, spent })
    }
}

impl Blocks for ThreadBlocks {
    fn next(&mut self, spent: Block) -> Result<Option<Block>, ReadError> {
        // If there is no room, the block is dropped: there are enough others.
        let _ = self.spent.try_send(spent);
        self.full.recv().ok().transpose()
    }
}

/// Appends bytes of a reader, up to this length, or to the reader's end.
fn fill(reader: &mut impl Read, bytes: &mut Vec<u8>, length: usize) -> io::Result<()> {
    let missing = length - bytes.len();
    bytes.reserve_exact(missing);
    reader.take(missing as u64).read_to_end(bytes).map(drop)
}

/// Returns the number of line feeds.
fn line_feeds(bytes: &[u8]) -> usize {
    // The sum of this few fits into a byte, and compilers vectorize it.
    let in_chunk = |chunk: &[u8]| chunk.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>();
    bytes.chunks(192).map(|chunk| usize::from(in_chunk(chunk))).sum()
}
