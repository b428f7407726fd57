use crate::operation::{Known, Storage, bytes};
use burn::backend::ir::{BaseOperationIr, OperationIr, SliceOpIr, TensorId, TensorIr, TensorStatus};
use rustc_hash::FxHashMap;
use std::fmt;

/// How many bytes the tensors take that are alive, by the operations that make them and the ones that use them last.
///
/// It is told of each operation, in the order the program asks for them, and counts what each makes until it is dropped, or used by an
/// operation for the last time. This is what the program holds, not what the device does:
///
/// - Kernels that Burn fuses need no memory for what only passes between them; the allocator rounds up, pads rows, and keeps what it
///   has for later. What kernels need beside their tensors is not known here, nor are the scales of quantized tensors.
/// - `reshape`, `swap_dims`, `permute`, `expand` and `unfold` share the memory of what they are of, which is freed with the last of
///   them. A reshape of what is not contiguous copies: such a copy is not counted. A `slice` shares, too, if it has no steps, and starts
///   and ends at multiples of 512 bytes, which is what CUDA wants; elsewhere it is a copy. A `cast` to the same type shares.
/// - Operations on each number, and those that replace some, write over an input that nobody needs any more, if it has the size of what
///   comes out and its memory is not shared. All else has its inputs and outputs at the same time.
///
/// Tensors from before it was told of any are not counted, nor what is a view of them. There are ends that Burn tells nobody of: the
/// data of a tensor that is taken with it, and one that is dropped by another thread than the one that made it. These would stay for
/// ever, so at most [`MAX_TENSORS`](Self::MAX_TENSORS) are kept. When there are more, those that were not used for longest are
/// [forgotten](Self::forgotten), half of all.
///
/// ```
/// use burn::{
///     backend::ir::{BaseOperationIr, CreationOpIr, OperationIr, TensorId, TensorIr, TensorStatus},
///     tensor::{DType, Shape},
/// };
/// use kernspan_burn::LiveMemory;
///
/// let mut memory = LiveMemory::new();
/// let out = TensorIr::uninit(TensorId::new(0), Shape::new([8, 16]), DType::F32);
/// memory.registered(&OperationIr::BaseFloat(BaseOperationIr::Zeros(CreationOpIr { out: out.clone() })));
/// assert_eq!(memory.bytes(), 8 * 16 * 4);
/// memory.registered(&OperationIr::Drop(TensorIr { status: TensorStatus::ReadWrite, ..out }));
/// assert_eq!((memory.bytes(), memory.peak()), (0, 8 * 16 * 4));
/// ```
#[derive(Default)]
pub struct LiveMemory {
    tensors: FxHashMap<TensorId, StorageId>,
    storages: Vec<Memory>,
    unused: Vec<StorageId>,
    bytes: u64,
    peak: u64,
    /// Operations so far.
    now: u64,
    forgotten: u64,
}

/// A place in [`LiveMemory::storages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StorageId(u32);

/// What one tensor has, or several share.
#[derive(Clone, Copy, Debug)]
struct Memory {
    bytes: u64,
    tensors: u32,
    /// When it was used last.
    used: u64,
}

impl LiveMemory {
    /// How many tensors are kept.
    pub const MAX_TENSORS: usize = 100_000;
    /// What a slice's ends are multiples of where it is no copy, in bytes.
    const ALIGNMENT: u64 = 512;

    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The program asked for an operation.
    pub fn registered(&mut self, operation: &OperationIr) {
        self.now += 1;
        if let OperationIr::Drop(tensor) = operation {
            self.release(tensor.id);
            return;
        }
        let (known, arguments) = Known::of(operation);
        for input in arguments.inputs() {
            self.touch(input.id);
        }
        let mut outputs = arguments.outputs();
        if let Some(output) = outputs.next() {
            match known.storage {
                Storage::View => self.share(arguments.inputs().next(), output),
                Storage::MaybeView if is_view(operation) => self.share(arguments.inputs().next(), output),
                Storage::InPlace => match arguments.inputs().find(|input| self.can_be_written(input, output)) {
                    Some(input) => self.share(Some(input), output),
                    None => self.allocate(output),
                },
                Storage::MaybeView | Storage::New => self.allocate(output),
            }
        }
        outputs.for_each(|output| self.allocate(output));
        for input in arguments.inputs().filter(|input| is_last_use(input)) {
            self.release(input.id);
        }
        if self.tensors.len() > Self::MAX_TENSORS {
            self.forget();
        }
    }

    /// What the tensors that are alive take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The most that it was.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// How many tensors are no longer counted though nobody said that they were dropped.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn touch(&mut self, tensor: TensorId) {
        let now = self.now;
        if let Some(memory) = self.memory_mut(tensor) {
            memory.used = now;
        }
    }

    fn allocate(&mut self, tensor: &TensorIr) {
        self.release(tensor.id);
        let memory = Memory { bytes: bytes(tensor), tensors: 1, used: self.now };
        let storage = match self.unused.pop() {
            Some(storage) => {
                self.storages[storage.place()] = memory;
                storage
            }
            None => {
                let storage = StorageId(u32::try_from(self.storages.len()).unwrap_or(u32::MAX));
                self.storages.push(memory);
                storage
            }
        };
        self.tensors.insert(tensor.id, storage);
        self.bytes = self.bytes.saturating_add(memory.bytes);
        self.peak = self.peak.max(self.bytes);
    }

    /// What is a view of something unknown is unknown.
    fn share(&mut self, of: Option<&TensorIr>, tensor: &TensorIr) {
        let Some(&storage) = of.and_then(|of| self.tensors.get(&of.id)) else { return };
        self.storages[storage.place()].tensors += 1;
        self.release(tensor.id);
        self.tensors.insert(tensor.id, storage);
    }

    fn release(&mut self, tensor: TensorId) {
        let Some(storage) = self.tensors.remove(&tensor) else { return };
        let memory = &mut self.storages[storage.place()];
        memory.tensors -= 1;
        if memory.tensors == 0 {
            self.bytes = self.bytes.saturating_sub(memory.bytes);
            self.unused.push(storage);
        }
    }

    fn can_be_written(&self, input: &TensorIr, output: &TensorIr) -> bool {
        let alone = |memory: &Memory| memory.tensors == 1 && memory.bytes == bytes(output);
        is_last_use(input) && self.memory(input.id).is_some_and(alone)
    }

    fn memory(&self, tensor: TensorId) -> Option<&Memory> {
        self.storages.get(self.tensors.get(&tensor)?.place())
    }

    fn memory_mut(&mut self, tensor: TensorId) -> Option<&mut Memory> {
        self.storages.get_mut(self.tensors.get(&tensor)?.place())
    }

    /// Leaves the half that was used last.
    fn forget(&mut self) {
        let mut times: Vec<_> = self.tensors.values().map(|storage| self.storages[storage.place()].used).collect();
        let middle = times.len() / 2;
        let (_, &mut middle, _) = times.select_nth_unstable(middle);
        let old = |storage: &StorageId| self.storages[storage.place()].used <= middle;
        let old: Vec<_> = self.tensors.iter().filter(|(_, storage)| old(storage)).map(|(&tensor, _)| tensor).collect();
        self.forgotten += old.len() as u64;
        old.into_iter().for_each(|tensor| self.release(tensor));
    }
}

impl StorageId {
    fn place(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for LiveMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveMemory")
            .field("bytes", &self.bytes)
            .field("peak", &self.peak)
            .field("tensors", &self.tensors.len())
            .field("forgotten", &self.forgotten)
            .finish_non_exhaustive()
    }
}

fn is_last_use(input: &TensorIr) -> bool {
    input.status == TensorStatus::ReadWrite
}

/// Whether what is sometimes a view is one now.
fn is_view(operation: &OperationIr) -> bool {
    match operation {
        OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base) => match base {
            BaseOperationIr::Slice(slice) => is_aligned(slice),
            BaseOperationIr::Cast(cast) => cast.input.dtype == cast.out.dtype,
            _ => false,
        },
        _ => false,
    }
}

/// Whether a slice of something contiguous starts and ends where memory can be taken as it is.
fn is_aligned(slice: &SliceOpIr) -> bool {
    let shape = &slice.tensor.shape;
    let mut stride = slice.tensor.dtype.size() as u64;
    let (mut before, mut after) = (0_u64, 0_u64);
    for (dim, &size) in shape.iter().enumerate().rev() {
        if let Some(part) = slice.ranges.get(dim) {
            if part.step != 1 {
                return false;
            }
            let range = part.to_range(size);
            before = before.wrapping_add(stride.wrapping_mul(range.start as u64));
            after = after.wrapping_add(stride.wrapping_mul(size.saturating_sub(range.end) as u64));
        }
        stride = stride.wrapping_mul(size as u64);
    }
    [before, after].into_iter().all(|bytes| bytes.is_multiple_of(LiveMemory::ALIGNMENT))
}
