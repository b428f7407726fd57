//! The text of a document, only part of which is in memory at a time.

use super::{
    ReadError,
    blocks::{Block, Blocks},
    scanner::{Scanner, Wrong},
};
use serde::de::Error as _;

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
