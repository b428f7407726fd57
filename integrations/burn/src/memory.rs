use crate::operation::{OperationKind, Storage, bytes};
use burn::backend::ir::{BaseOperationIr, OperationIr, SliceOpIr, TensorId, TensorIr, TensorStatus};
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt;

/// The memory of a program's live tensors in bytes, computed from the operations that create and use them.
///
/// It [records](Self::record) each operation, in the order in which the program requests them. A tensor counts from the
/// operation that creates it until it is dropped, or until an operation uses it for the last time. The result is the
/// memory of the program's tensors, which differs from the memory that the device allocates:
///
/// - A fused kernel needs no memory for tensors that only pass between its operations. The allocator rounds sizes up,
///   pads rows and keeps freed memory. The scratch memory of kernels and the scales of quantized tensors are not known
///   here.
/// - `reshape`, `swap_dims`, `permute`, `expand` and `unfold` are views: they share memory with their input, which is
///   freed with the last of them. The copy that a reshape makes of a tensor that is not contiguous is not counted. A
///   `slice` is a view if it has no steps and starts and ends at multiples of 512 bytes, as CUDA requires, and else a
///   copy. A `cast` to the same type is a view.
/// - Elementwise operations, and those that update some elements, write their output over an input that is not needed
///   any more, if it has the same size and its memory is not shared. For all other operations, inputs and outputs exist
///   at the same time.
///
/// Tensors that only pass between operations of one [block](Self::record_block) take no memory.
///
/// Tensors older than the first recorded operation are not counted, nor are views of them. Burn does not report the end
/// of a tensor whose data is read out, or that is dropped by a thread other than the one that created it. These would
/// be counted forever, so at most [`MAX_TENSORS`](Self::MAX_TENSORS) are kept. When there are more, the least recently
/// used half is [evicted](Self::evicted).
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
/// memory.record(&OperationIr::BaseFloat(BaseOperationIr::Zeros(CreationOpIr { out: out.clone() })));
/// assert_eq!(memory.bytes(), 8 * 16 * 4);
/// memory.record(&OperationIr::Drop(TensorIr { status: TensorStatus::ReadWrite, ..out }));
/// assert_eq!((memory.bytes(), memory.peak()), (0, 8 * 16 * 4));
/// ```
#[derive(Default)]
pub struct LiveMemory {
    tensors: FxHashMap<TensorId, AllocationId>,
    allocations: Vec<Allocation>,
    unused: Vec<AllocationId>,
    bytes: u64,
    peak: u64,
    /// The number of operations so far, which serves as the time.
    now: u64,
    evicted: u64,
    /// The first tensor that is not older than all operations, if older ones are followed, too.
    first: Option<TensorId>,
    /// The changes of the latest operation or block.
    changes: Vec<TensorMemory>,
    /// The index of the current operation in its block.
    operation: usize,
    /// The stream of the current operation.
    stream: u64,
}

/// Memory that an operation of a block allocates for a tensor, or frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TensorMemory {
    /// The index of the operation in its block.
    pub(crate) operation: usize,
    /// A number that stands for the memory, from the tensor that it was allocated for.
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) is_freed: bool,
}

/// An index of [`LiveMemory::allocations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AllocationId(u32);

/// The memory of one tensor, or of several that share it.
#[derive(Clone, Copy, Debug)]
struct Allocation {
    number: u64,
    bytes: u64,
    tensors: u32,
    /// The time of the latest use.
    used: u64,
    /// Whether no operation has used it since the latest tensor was made of it.
    is_untouched: bool,
    /// Whether it is older than all operations, and so is not counted.
    is_older: bool,
    stream: u64,
}

impl LiveMemory {
    /// The most tensors that are kept.
    pub const MAX_TENSORS: usize = 100_000;
    /// The start and the end of a slice that is a view are multiples of this, in bytes.
    const ALIGNMENT: u64 = 512;

    /// Makes a counter without tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a counter that also follows tensors older than the operations: they are not counted, but their end is one
    /// of the [changes](Self::run_block), and what is written over them takes no memory. `first` is the first output of
    /// all operations; Burn numbers tensors in the order in which the program makes them.
    #[cfg_attr(not(all(feature = "cubecl", feature = "fusion")), expect(dead_code, reason = "used with fusion"))]
    pub(crate) fn since(first: TensorId) -> Self {
        Self { first: Some(first), ..Self::default() }
    }

    /// Records an operation that the program requests.
    pub fn record(&mut self, operation: &OperationIr) {
        self.run_block([(operation, 0)]);
    }

    /// Records operations that run as one kernel. A tensor that one of them creates and another uses for the last time
    /// takes no memory.
    ///
    /// ```
    /// # use burn::{
    /// #     backend::ir::{OperationIr, NumericOperationIr, UnaryOpIr, TensorId, TensorIr, TensorStatus},
    /// #     tensor::{DType, Shape},
    /// # };
    /// # use kernspan_burn::LiveMemory;
    /// # let tensor = |id| TensorIr::uninit(TensorId::new(id), Shape::new([8, 16]), DType::F32);
    /// # let neg = |input, out| {
    /// #     OperationIr::NumericFloat(DType::F32, NumericOperationIr::Neg(UnaryOpIr { input, out }))
    /// # };
    /// # let [older, between, result] = [0, 1, 2].map(tensor);
    /// # let read = |status, tensor: &TensorIr| TensorIr { status, ..tensor.clone() };
    /// # let first = neg(read(TensorStatus::ReadOnly, &older), between.clone());
    /// # let second = neg(read(TensorStatus::ReadWrite, &between), result);
    /// let mut memory = LiveMemory::new();
    /// memory.record_block([&first, &second]);
    /// assert_eq!((memory.bytes(), memory.peak()), (8 * 16 * 4, 8 * 16 * 4));
    /// ```
    pub fn record_block<'a>(&mut self, operations: impl IntoIterator<Item = &'a OperationIr>) {
        self.run_block(operations.into_iter().map(|operation| (operation, 0)));
    }

    /// Records operations that run as one kernel, each with the stream of the thread that requested it, and returns the
    /// memory that they allocate and free.
    pub(crate) fn run_block<'a>(
        &mut self,
        operations: impl IntoIterator<Item = (&'a OperationIr, u64)>,
    ) -> &[TensorMemory] {
        let (before, peak) = (self.bytes, self.peak);
        self.changes.clear();
        let mut computing = 0;
        for (index, (operation, stream)) in operations.into_iter().enumerate() {
            (self.operation, self.stream) = (index, stream);
            computing += usize::from(!matches!(operation, OperationIr::Drop(_)));
            self.run(operation);
        }
        if computing > 1 {
            let numbers = |is_freed: bool| -> FxHashSet<u64> {
                self.changes.iter().filter(|it| it.is_freed == is_freed).map(|it| it.number).collect()
            };
            let (allocated, freed) = (numbers(false), numbers(true));
            self.changes.retain(|it| !(allocated.contains(&it.number) && freed.contains(&it.number)));
            let allocated: u64 = self.changes.iter().filter(|it| !it.is_freed).map(|it| it.bytes).sum();
            self.peak = peak.max(before.saturating_add(allocated));
        }
        &self.changes
    }

    fn run(&mut self, operation: &OperationIr) {
        self.now += 1;
        if let OperationIr::Drop(tensor) = operation {
            self.find_older(tensor);
            self.release(tensor.id);
            return;
        }
        let (kind, arguments) = OperationKind::of(operation);
        for input in arguments.inputs() {
            self.find_older(input);
            self.touch(input.id);
        }
        let mut outputs = arguments.outputs();
        if let Some(output) = outputs.next() {
            match kind.storage {
                Storage::View => self.share(arguments.inputs().next(), output),
                Storage::MaybeView if is_view(operation) => self.share(arguments.inputs().next(), output),
                Storage::InPlace => match arguments.inputs().find(|input| self.can_be_reused(input, output)) {
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
            self.evict();
        }
    }

    /// Returns the bytes of the live tensors.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the peak number of bytes of live tensors so far.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// Returns the number of tensors that are no longer counted, although Burn did not report their end.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    fn touch(&mut self, tensor: TensorId) {
        let now = self.now;
        if let Some(allocation) = self.allocation_mut(tensor) {
            allocation.used = now;
            allocation.is_untouched = false;
        }
    }

    /// Finds the memory of an input that no operation has created.
    fn find_older(&mut self, input: &TensorIr) {
        let Some(first) = self.first.filter(|_| !self.tensors.contains_key(&input.id)) else { return };
        if input.id.value() < first.value() {
            self.add(input, true);
            return;
        }
        // Another thread made it, and this one has a new id for it. Burn does not report which one it is, but a thread
        // that loads batches of one size makes them in the order in which they are used.
        let is_candidate = |allocation: &Allocation| {
            allocation.is_untouched && allocation.bytes == bytes(input) && allocation.stream != self.stream
        };
        let candidates = self.tensors.iter().filter(|(_, id)| is_candidate(&self.allocations[id.index()]));
        let oldest = candidates.min_by_key(|(tensor, _)| tensor.value()).map(|(&tensor, &id)| (tensor, id));
        if let Some((tensor, id)) = oldest {
            self.tensors.remove(&tensor);
            self.tensors.insert(input.id, id);
        }
    }

    fn allocate(&mut self, tensor: &TensorIr) {
        self.release(tensor.id);
        self.add(tensor, false);
    }

    fn add(&mut self, tensor: &TensorIr, is_older: bool) {
        let allocation = Allocation {
            // Not 0, which stands for no memory elsewhere.
            number: tensor.id.value().wrapping_add(1),
            bytes: bytes(tensor),
            tensors: 1,
            used: self.now,
            is_untouched: !is_older,
            is_older,
            stream: self.stream,
        };
        let id = match self.unused.pop() {
            Some(id) => {
                self.allocations[id.index()] = allocation;
                id
            }
            None => {
                let id = AllocationId(u32::try_from(self.allocations.len()).unwrap_or(u32::MAX));
                self.allocations.push(allocation);
                id
            }
        };
        self.tensors.insert(tensor.id, id);
        if !is_older {
            self.bytes = self.bytes.saturating_add(allocation.bytes);
            self.peak = self.peak.max(self.bytes);
            self.note(allocation, false);
        }
    }

    fn note(&mut self, Allocation { number, bytes, .. }: Allocation, is_freed: bool) {
        self.changes.push(TensorMemory { operation: self.operation, number, bytes, is_freed });
    }

    /// Makes a tensor share the memory of another. A view of a tensor that is not counted is not counted either.
    fn share(&mut self, with: Option<&TensorIr>, tensor: &TensorIr) {
        let Some(&id) = with.and_then(|with| self.tensors.get(&with.id)) else { return };
        let allocation = &mut self.allocations[id.index()];
        allocation.tensors += 1;
        allocation.is_untouched = true;
        self.release(tensor.id);
        self.tensors.insert(tensor.id, id);
    }

    fn release(&mut self, tensor: TensorId) {
        let Some(id) = self.tensors.remove(&tensor) else { return };
        let allocation = &mut self.allocations[id.index()];
        allocation.tensors -= 1;
        if allocation.tensors == 0 {
            let allocation = *allocation;
            if !allocation.is_older {
                self.bytes = self.bytes.saturating_sub(allocation.bytes);
            }
            self.unused.push(id);
            self.note(allocation, true);
        }
    }

    /// Returns whether the output can be written over the input.
    fn can_be_reused(&self, input: &TensorIr, output: &TensorIr) -> bool {
        let fits = |allocation: &Allocation| allocation.tensors == 1 && allocation.bytes == bytes(output);
        is_last_use(input) && self.allocation(input.id).is_some_and(fits)
    }

    fn allocation(&self, tensor: TensorId) -> Option<&Allocation> {
        self.allocations.get(self.tensors.get(&tensor)?.index())
    }

    fn allocation_mut(&mut self, tensor: TensorId) -> Option<&mut Allocation> {
        self.allocations.get_mut(self.tensors.get(&tensor)?.index())
    }

    /// Evicts the least recently used half of the tensors.
    fn evict(&mut self) {
        let mut times: Vec<_> = self.tensors.values().map(|id| self.allocations[id.index()].used).collect();
        let middle = times.len() / 2;
        let (_, &mut middle, _) = times.select_nth_unstable(middle);
        let is_old = |id: &AllocationId| self.allocations[id.index()].used <= middle;
        let old: Vec<_> = self.tensors.iter().filter(|(_, id)| is_old(id)).map(|(&tensor, _)| tensor).collect();
        self.evicted += old.len() as u64;
        old.into_iter().for_each(|tensor| self.release(tensor));
    }
}

impl AllocationId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for LiveMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveMemory")
            .field("bytes", &self.bytes)
            .field("peak", &self.peak)
            .field("tensors", &self.tensors.len())
            .field("evicted", &self.evicted)
            .finish_non_exhaustive()
    }
}

fn is_last_use(input: &TensorIr) -> bool {
    input.status == TensorStatus::ReadWrite
}

/// Returns whether an operation of [`Storage::MaybeView`] is a view.
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

/// Returns whether a slice of a contiguous tensor starts and ends at the alignment that a view needs.
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
