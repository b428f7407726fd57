//! The text of a document, only part of which is in memory at a time. A file is read in blocks, by another thread if
//! there are several.

use super::{
    ReadError,
    scanner::{Scanner, Wrong},
};
use crate::thread::mute_this_thread;
use serde::de::Error as _;
use std::{
    io::{self, Read},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{Builder, Scope},
};

/// The text of a document. It is scanned part by part; scanned text is dropped when more is read, so only the largest
/// part must fit into memory, not the document.
pub(super) struct Text<'b> {
    blocks: &'b mut dyn Blocks,
    /// The text in memory.
    text: String,
    /// The number of its bytes that have been scanned.
    at: usize,
    /// The number of lines that end in the text in memory or before it.
    lines: usize,
    /// The number of bytes between the last line feed before the text in memory and that text.
    column: usize,
    /// The block whose memory is reused for the next one.
    spent: Block,
    has_ended: bool,
}

impl<'b> Text<'b> {
    pub(super) fn new(blocks: &'b mut dyn Blocks) -> Self {
        Self { blocks, text: String::new(), at: 0, lines: 0, column: 0, spent: Block::default(), has_ended: false }
    }

    /// Returns a scanner for the unscanned text in memory.
    pub(super) fn scanner(&self) -> Scanner<'_> {
        Scanner::new(&self.text[self.at..])
    }

    /// Skips these bytes, which have been scanned.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Scans a part of the document. If the text in memory ends inside it, this is repeated with more text, so `scan`
    /// must not have changed anything.
    pub(super) fn part<T>(
        &mut self,
        mut scan: impl FnMut(&mut Scanner<'_>) -> Result<T, Wrong>,
    ) -> Result<T, ReadError> {
        loop {
            let mut scanner = self.scanner();
            let scanned = scan(&mut scanner);
            let (at, is_at_end) = (scanner.position(), scanner.is_at_end());
            // Even if nothing is missing: a number may continue in the next block.
            if is_at_end && self.more()? {
                continue;
            }
            return match scanned {
                Ok(part) => {
                    self.advance(at);
                    Ok(part)
                }
                Err(wrong) => Err(self.error(wrong, at)),
            };
        }
    }

    /// Scans the end of the document.
    pub(super) fn end(&mut self) -> Result<(), ReadError> {
        self.part(|scanner| {
            scanner.end()?;
            Ok(())
        })
    }

    /// Reads more text, and drops the scanned text. Returns whether there was more.
    pub(super) fn more(&mut self) -> Result<bool, ReadError> {
        if self.at > 0 {
            let scanned = &self.text[..self.at];
            self.column = match scanned.rfind('\n') {
                Some(end) => self.at - end - 1,
                None => self.column + self.at,
            };
            self.text.drain(..self.at);
            self.at = 0;
        }
        // Doubles the text, since the part that does not fit is scanned from its start.
        let wanted = 2 * self.text.len();
        let mut has_more = false;
        while !self.has_ended && (!has_more || self.text.len() < wanted) {
            match self.blocks.next(std::mem::take(&mut self.spent))? {
                Some(block) if self.text.is_empty() => {
                    self.lines += block.lines;
                    self.spent.text = std::mem::replace(&mut self.text, block.text);
                    has_more = true;
                }
                Some(block) => {
                    self.lines += block.lines;
                    self.text.push_str(&block.text);
                    self.spent = block;
                    has_more = true;
                }
                None => self.has_ended = true,
            }
        }
        Ok(has_more)
    }

    /// Returns an error that names the line and the column of this byte of the unscanned text.
    pub(super) fn error(&self, wrong: Wrong, at: usize) -> ReadError {
        let at = self.at + at;
        let read = &self.text.as_bytes()[..self.text.len().min(at + 1)];
        let after = self.text.as_bytes()[read.len()..].iter().filter(|byte| **byte == b'\n').count();
        let line = 1 + self.lines - after;
        let column = match read.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => read.len() - end - 1,
            None => self.column + read.len(),
        };
        let what = match wrong {
            Wrong::Missing(name) => return serde_json::Error::missing_field(name).into(),
            Wrong::Unexpected(_) if at >= self.text.len() => "the file ends too early",
            Wrong::Unexpected(what) => what,
        };
        serde_json::Error::custom(format_args!("{what} at line {line} column {column}")).into()
    }
}

/// The block size in bytes: far larger than an event, since events that cross the edge of two blocks are scanned twice,
/// and small enough that a block is still in the processor's cache when it is scanned.
pub(super) const BLOCK: usize = 256 << 10;

/// The number of blocks that may wait to be scanned. More would only take memory, since the slower of the two threads
/// sets the pace.
const WAITING: usize = 4;

/// A part of a document's text, of about as many bytes as requested.
#[derive(Debug, Default)]
pub(super) struct Block {
    text: String,
    /// The number of line feeds in it.
    lines: usize,
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
