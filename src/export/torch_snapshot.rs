//! PyTorch's memory snapshots: what `torch.cuda.memory._dump_snapshot` writes, and `torch.cuda._memory_viz` and
//! pytorch.org/memory_viz read.
//!
//! Each allocation is a segment of its own: a recording does not say how an allocator divides its segments.

mod pickle;

use self::pickle::{Pickle, Shared};
use crate::{
    analysis::{MemoryCategory, MemoryFrame, MemorySnapshot, MemoryTimeline},
    trace::{Allocation, DeviceId, MemoryChange, Span, SpanId, Timestamp},
};
use rustc_hash::FxHashMap;
use std::{
    collections::BTreeMap,
    io::{self, Write},
    iter,
};

/// The most frames of a stack, the innermost ones: recursion may be thousands deep.
const FRAMES: usize = 100;
/// Segments up to this size are `small` in PyTorch (`kSmallSize` in `CUDACachingAllocator`).
const SMALL: u64 = 1 << 20;
/// Where made-up addresses end, and so the last address that is believed: no GPU has an exabyte.
const ADDRESSES: u64 = 1 << 60;
/// The alignment of made-up addresses, which is that of PyTorch's segments.
const ALIGNMENT: u64 = 2 << 20;

/// Memory at an address, and the spans that allocated it.
#[derive(Clone, Copy)]
struct Block<'a> {
    address: u64,
    bytes: u64,
    stack: Stack<'a>,
    category: Option<MemoryCategory>,
}

/// The spans that allocated a block.
#[derive(Clone, Copy)]
enum Stack<'a> {
    /// A span of a window, and those around it.
    Window(Option<Span<'a>>),
    /// Those of a snapshot, innermost first.
    Snapshot(&'a [MemoryFrame]),
}

/// What tells stacks apart: spans have numbers of their own in each window, and each GPU has its own window.
type StackKey = (DeviceId, Option<SpanId>, usize);

impl Stack<'_> {
    fn key(self, device: DeviceId) -> StackKey {
        match self {
            Self::Window(span) => (device, span.map(Span::id), 0),
            Self::Snapshot(frames) => (device, None, frames.as_ptr().addr()),
        }
    }

    fn write(self, pickle: &mut Pickle<'_>) -> io::Result<()> {
        let frame = |pickle: &mut Pickle<'_>, file: Option<&str>, line: Option<u32>, name: &str| {
            pickle.dict(|pickle| {
                pickle.key("filename")?.str(file.unwrap_or("none"))?;
                pickle.key("line")?.int(line.unwrap_or(0).into())?;
                pickle.key("name")?.str(name)
            })
        };
        match self {
            Self::Window(span) => {
                let stack = iter::successors(span, |span| span.caller()).take(FRAMES);
                pickle.list(stack, |pickle, span| {
                    frame(pickle, span.callsite().file(), span.callsite().line(), span.name())
                })
            }
            Self::Snapshot(frames) => pickle.list(frames, |pickle, of| frame(pickle, of.file, of.line, &of.name)),
        }
    }
}

/// A block that is allocated or freed.
struct Event<'a> {
    change: MemoryChange,
    at: Timestamp,
    block: Block<'a>,
}

/// What happened to the memory of a GPU. After each change, the blocks in use add up to what the recording says.
struct History<'a> {
    device: DeviceId,
    closed: Timestamp,
    events: Vec<Event<'a>>,
    /// What is in use at the end.
    live: Vec<Block<'a>>,
    /// The bytes of memory from before the window that are still in use.
    before: u64,
    /// The bytes in use after the events so far.
    in_use: u64,
    /// The next made-up address, above all others.
    unused: u64,
    /// The blocks at addresses that are not made up: where they start and end.
    placed: BTreeMap<u64, u64>,
    /// The made-up addresses of blocks, by their own.
    moved: FxHashMap<u64, u64>,
}

/// Writes a snapshot of PyTorch: what `torch.cuda.memory._dump_snapshot` writes, and `torch.cuda._memory_viz` and
/// pytorch.org/memory_viz show. Its history is that of the live allocations.
///
/// ```
/// # fn save(profiler: &kernspan::Profiler) -> Result<(), Box<dyn std::error::Error>> {
/// use kernspan::export::{write_file, write_torch_snapshot};
///
/// let snapshot = profiler.memory_snapshot()?;
/// write_file("memory.pickle", |out| write_torch_snapshot(&snapshot, out))?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If `out` cannot be written.
pub fn write_torch_snapshot(snapshot: &MemorySnapshot, out: &mut dyn Write) -> io::Result<()> {
    let histories = snapshot.gpus().iter().map(|gpu| {
        let held = snapshot.allocations().iter().filter(|held| held.device == gpu.device && held.bytes > 0);
        let blocks = held.map(|held| {
            let stack = Stack::Snapshot(snapshot.frames(held));
            (held.at, Block { address: held.address, bytes: held.bytes, stack, category: None })
        });
        let mut history = History::new(gpu.device, snapshot.at());
        blocks.for_each(|(at, block)| {
            history.allocate(at, block);
            history.live.push(block);
        });
        history
    });
    write(&histories.collect::<Vec<_>>(), out)
}

/// Writes a snapshot of PyTorch like [`write_torch_snapshot`], of the end of a window of each of these GPUs, with all
/// that was allocated and freed in the window.
///
/// # Errors
///
/// If `out` cannot be written.
pub fn write_torch_snapshot_of_windows(timelines: &[&MemoryTimeline<'_>], out: &mut dyn Write) -> io::Result<()> {
    let histories: Vec<_> = timelines.iter().map(|timeline| History::of(timeline)).collect();
    write(&histories, out)
}

fn write(histories: &[History<'_>], out: &mut dyn Write) -> io::Result<()> {
    let count = histories.iter().map(|history| history.device.as_u32() as usize + 1).max().unwrap_or(0);
    let mut pickle = Pickle::new(out)?;
    let mut frames = Frames::default();
    pickle.dict(|pickle| {
        let live = histories.iter().flat_map(|history| history.live.iter().map(|block| (history.device, *block)));
        pickle.key("segments")?.list(live, |pickle, (device, block)| segment(pickle, &mut frames, device, block))?;
        // The position in the list is the number of the GPU.
        pickle.key("device_traces")?.list(0..count, |pickle, device| {
            let history = histories.iter().find(|history| history.device.as_u32() as usize == device);
            let actions = history.into_iter().flat_map(|history| history.actions().map(|it| (history.device, it)));
            pickle.list(actions, |pickle, (device, action)| event(pickle, &mut frames, device, action))
        })
    })?;
    pickle.end()
}

impl<'a> History<'a> {
    fn new(device: DeviceId, closed: Timestamp) -> Self {
        Self {
            device,
            closed,
            events: Vec::new(),
            live: Vec::new(),
            before: 0,
            in_use: 0,
            unused: 0,
            placed: BTreeMap::new(),
            moved: FxHashMap::default(),
        }
    }

    fn of(timeline: &MemoryTimeline<'a>) -> Self {
        let end = |change: Allocation<'_>| change.address().saturating_add(change.bytes().unwrap_or(0));
        let ends = timeline.changes().map(|(change, _)| end(change));
        let highest = ends.filter(|&end| end <= ADDRESSES).max().unwrap_or(0);
        let opened = timeline.changes().next().map_or(0, |(first, _)| {
            let bytes = first.bytes().unwrap_or(0);
            match first.change() {
                MemoryChange::Allocate => first.in_use().saturating_sub(bytes),
                MemoryChange::Free => first.in_use().saturating_add(bytes),
            }
        });
        // In a file that has nothing else, the window may end before its last change of memory.
        let closed = timeline.changes().map(|(change, _)| change.at()).chain([timeline.trace().end()]).max();
        let mut history = Self {
            before: opened,
            in_use: opened,
            unused: highest.checked_next_multiple_of(ALIGNMENT).unwrap_or(highest),
            ..Self::new(timeline.device(), closed.unwrap_or_default())
        };
        for (change, block) in timeline.changes() {
            let span = block.map_or(change.span(), |block| block.allocated.span());
            let category = block.map(|block| block.category);
            let (stack, bytes) = (Stack::Window(span), change.bytes().unwrap_or(0));
            let mut of = Block { address: change.address(), bytes, stack, category };
            if change.change() == MemoryChange::Allocate {
                if block.is_some_and(|block| block.reused.is_some()) {
                    // Its free was not recorded, so it stays in use, and another block gets its address.
                    of.address = history.unused_address(of.bytes);
                } else {
                    of.address = history.place(of.address, of.bytes);
                }
                let expected = history.in_use.saturating_add(of.bytes);
                history.free_unrecorded(change.at(), expected.saturating_sub(change.in_use()));
                history.allocate(change.at(), of);
                if block.is_none_or(|block| block.freed.is_none()) && of.bytes > 0 {
                    history.live.push(of);
                }
            } else {
                match block {
                    Some(block) => {
                        of.bytes = block.bytes();
                        of.address = history.leave(of.address);
                    }
                    // Of memory from before, no more is freed than there was.
                    None => {
                        of.bytes = of.bytes.min(history.before);
                        history.before -= of.bytes;
                    }
                }
                history.free(change.at(), of);
                history.free_unrecorded(change.at(), history.in_use.saturating_sub(change.in_use()));
            }
            // What else has been allocated since was not recorded, or was lost.
            let missing = change.in_use().saturating_sub(history.in_use);
            if missing > 0 {
                let address = history.unused_address(missing);
                let unrecorded = Block { address, bytes: missing, stack: Stack::Window(None), category: None };
                history.allocate(change.at(), unrecorded);
                history.live.push(unrecorded);
            }
        }
        if history.before > 0 {
            let address = history.unused_address(history.before);
            history.live.push(Block { address, bytes: history.before, stack: Stack::Window(None), category: None });
        }
        history
    }

    /// Returns where a block is shown: at its own address, unless other memory is there, of which the free was not
    /// recorded, or the address cannot be right.
    fn place(&mut self, address: u64, bytes: u64) -> u64 {
        let end = address.saturating_add(bytes);
        let is_taken = self.placed.range(..end).next_back().is_some_and(|(_, &other_end)| other_end > address);
        if is_taken || end > ADDRESSES {
            let made_up = self.unused_address(bytes);
            self.moved.insert(address, made_up);
            return made_up;
        }
        if bytes > 0 {
            self.placed.insert(address, end);
        }
        address
    }

    /// Returns where the block at an address is shown, as it is freed.
    fn leave(&mut self, address: u64) -> u64 {
        self.moved.remove(&address).unwrap_or_else(|| {
            self.placed.remove(&address);
            address
        })
    }

    fn unused_address(&mut self, bytes: u64) -> u64 {
        let address = self.unused;
        let end = address.saturating_add(bytes);
        self.unused = end.checked_next_multiple_of(ALIGNMENT).unwrap_or(end);
        address
    }

    fn allocate(&mut self, at: Timestamp, block: Block<'a>) {
        self.in_use = self.in_use.saturating_add(block.bytes);
        self.events.push(Event { change: MemoryChange::Allocate, at, block });
    }

    fn free(&mut self, at: Timestamp, block: Block<'a>) {
        self.in_use = self.in_use.saturating_sub(block.bytes);
        self.events.push(Event { change: MemoryChange::Free, at, block });
    }

    /// Frees memory from before the window of which no free was recorded, as far as there is some.
    fn free_unrecorded(&mut self, at: Timestamp, bytes: u64) {
        let bytes = bytes.min(self.before);
        if bytes > 0 {
            self.before -= bytes;
            let address = self.unused_address(bytes);
            self.free(at, Block { address, bytes, stack: Stack::Window(None), category: None });
        }
    }

    /// Returns the events as PyTorch's allocator records them. Blocks of no bytes are left out: the viewer fails on
    /// them, because it finds no segment at their address.
    fn actions(&self) -> impl Iterator<Item = (&'static str, Timestamp, Block<'a>)> {
        const ALLOCATE: &[&str] = &["segment_alloc", "alloc"];
        const FREE: &[&str] = &["free_requested", "free_completed", "segment_free"];
        let events = self.events.iter().filter(|event| event.block.bytes > 0);
        let actions = events.flat_map(|event| {
            let names = if event.change == MemoryChange::Allocate { ALLOCATE } else { FREE };
            names.iter().map(|&name| (name, event.at, event.block))
        });
        // PyTorch ends with this event, too. Its category is that of blocks without one, which the viewer needs to be
        // in the list of categories.
        let unknown =
            Block { address: 0, bytes: 0, stack: Stack::Window(None), category: Some(MemoryCategory::Unknown) };
        actions.chain(iter::once(("snapshot", self.closed, unknown)))
    }
}

fn segment(pickle: &mut Pickle<'_>, frames: &mut Frames, device: DeviceId, block: Block<'_>) -> io::Result<()> {
    pickle.dict(|pickle| {
        pickle.key("device")?.int(device.as_u32().into())?;
        pickle.key("address")?.int(block.address)?;
        for size in ["total_size", "allocated_size", "active_size", "requested_size"] {
            pickle.key(size)?.int(block.bytes)?;
        }
        pickle.key("stream")?.int(0)?;
        pickle.key("segment_type")?.str(if block.bytes <= SMALL { "small" } else { "large" })?;
        pickle.key("segment_pool_id")?.pair(0, 0)?;
        pickle.key("is_expandable")?.bool(false)?;
        frames.write(pickle.key("frames")?, device, block.stack)?;
        pickle.key("blocks")?.list([block], |pickle, block| {
            pickle.dict(|pickle| {
                pickle.key("address")?.int(block.address)?;
                pickle.key("size")?.int(block.bytes)?;
                pickle.key("requested_size")?.int(block.bytes)?;
                pickle.key("state")?.str("active_allocated")?;
                frames.write(pickle.key("frames")?, device, block.stack)
            })
        })
    })
}

fn event(
    pickle: &mut Pickle<'_>,
    frames: &mut Frames,
    device: DeviceId,
    (action, at, block): (&str, Timestamp, Block<'_>),
) -> io::Result<()> {
    pickle.dict(|pickle| {
        pickle.key("action")?.str(action)?;
        pickle.key("addr")?.int(block.address)?;
        pickle.key("size")?.int(block.bytes)?;
        pickle.key("stream")?.int(0)?;
        pickle.key("time_us")?.int(at.as_unix_nanos() / 1_000)?;
        if let Some(category) = block.category {
            pickle.key("category")?.str(category.as_str())?;
        }
        frames.write(pickle.key("frames")?, device, block.stack)
    })
}

/// The stacks that have been written.
#[derive(Default)]
struct Frames(FxHashMap<StackKey, Shared>);

impl Frames {
    /// Writes a stack, from the inside out.
    fn write(&mut self, pickle: &mut Pickle<'_>, device: DeviceId, stack: Stack<'_>) -> io::Result<()> {
        let key = stack.key(device);
        if let Some(shared) = self.0.get(&key) {
            return pickle.again(*shared);
        }
        stack.write(pickle)?;
        self.0.insert(key, pickle.share()?);
        Ok(())
    }
}
