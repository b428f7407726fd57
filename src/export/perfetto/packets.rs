//! Packets, the messages that a Perfetto trace consists of.

use super::proto::TracePacket;
use crate::export::wire;
use prost::Message;
use std::io::{self, Write};

/// A buffered writer of packets. A trace is simply a sequence of packets.
pub(super) struct PacketWriter<'a> {
    out: &'a mut dyn Write,
    /// Packets that are passed on to `out` once they are large enough.
    bytes: Vec<u8>,
}

impl<'a> PacketWriter<'a> {
    /// The number of bytes passed on at a time.
    const BATCH: usize = 1 << 16;

    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, bytes: Vec::new() }
    }

    pub(super) fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        self.encoded(|out| packet.encode_raw(out))
    }

    /// Writes a packet whose fields are encoded by hand.
    pub(super) fn encoded(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        wire::message(&mut self.bytes, 1, write);
        if self.bytes.len() >= Self::BATCH { self.flush() } else { Ok(()) }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}
