//! Unwinds copied stacks: registers and bytes to addresses of code.

use super::{
    modules::{CodeModule, Mapping, Section},
    records::Registers,
};
use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, UnwindRegsNative, Unwinder, UnwinderNative,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

/// The most frames of a stack. A copy of the default size has some hundred.
const MOST_FRAMES: usize = 1024;

/// The code of this process, and how to unwind it.
pub(super) struct StackUnwinder {
    unwinder: UnwinderNative<Section, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// In the order of their addresses, with the mapping that each was made from.
    modules: Vec<(Mapping, Arc<CodeModule>)>,
    /// Whether an address was in no module since they were last read, and when that was.
    has_unknown: bool,
    read: Option<Instant>,
}

impl StackUnwinder {
    pub(super) fn new() -> Self {
        Self {
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
            modules: Vec::new(),
            has_unknown: true,
            read: None,
        }
    }

    /// Reads which libraries are loaded if an address was in none of those known. Returns whether it did: not if it
    /// was done just before, as a corrupted stack has addresses that are never known.
    pub(super) fn read_unknown(&mut self) -> bool {
        const EVERY: Duration = Duration::from_millis(50);
        let is_due = self.has_unknown && self.read.is_none_or(|read| read.elapsed() >= EVERY);
        if is_due {
            self.read_modules();
        }
        is_due
    }

    /// Reads which libraries are loaded.
    pub(super) fn read_modules(&mut self) {
        self.has_unknown = false;
        self.read = Some(Instant::now());
        self.set_mappings(Mapping::all());
    }

    /// Opens the files of mappings that are new, and closes those that are gone.
    pub(super) fn set_mappings(&mut self, mappings: Vec<Mapping>) {
        let gone = self.modules.extract_if(.., |(mapping, _)| !mappings.contains(mapping));
        gone.for_each(|(mapping, _)| self.unwinder.remove_module(mapping.range.start));
        for mapping in mappings {
            let Err(index) = self.modules.binary_search_by_key(&mapping.range.start, |(it, _)| it.range.start) else {
                continue;
            };
            let module = CodeModule::open(&mapping);
            self.unwinder.add_module(unwinding_module(&module));
            self.modules.insert(index, (mapping, Arc::new(module)));
        }
    }

    /// Returns the module that an address is in.
    pub(super) fn module(&self, address: u64) -> Option<&Arc<CodeModule>> {
        let after = self.modules.partition_point(|(mapping, _)| mapping.range.start <= address);
        let (_, module) = self.modules.get(after.checked_sub(1)?)?;
        Some(module).filter(|module| module.range.contains(&address))
    }

    /// Puts the addresses of a stack's frames into `frames`, innermost first, each inside of its instruction. Returns
    /// whether the root was reached.
    pub(super) fn unwind(&mut self, registers: Registers, stack: &[u8], frames: &mut Vec<u64>) -> bool {
        frames.clear();
        let highest = self.modules.last().map_or(0, |(mapping, _)| mapping.range.end);
        let (ip, sp, registers) = unwind_registers(registers, highest);
        if ip == 0 {
            return false;
        }
        let mut read = |address: u64| {
            let offset = usize::try_from(address.wrapping_sub(sp)).map_err(drop)?;
            let word = stack.get(offset..).and_then(|rest| rest.first_chunk()).ok_or(())?;
            Ok(u64::from_ne_bytes(*word))
        };
        // It computes with what it finds on the stack, which may be anything if code has no unwind information.
        let unwind = AssertUnwindSafe(|| {
            let mut found = self.unwinder.iter_frames(ip, registers, &mut self.cache, &mut read);
            loop {
                match found.next() {
                    Ok(Some(_)) if frames.len() == MOST_FRAMES => return false,
                    Ok(Some(frame)) => frames.push(frame.address_for_lookup()),
                    Ok(None) | Err(framehop::Error::ReturnAddressIsNull) => return true,
                    Err(_) => return false,
                }
            }
        });
        let complete = catch_unwind(unwind).unwrap_or(false);
        self.has_unknown |= !complete && frames.last().is_some_and(|&frame| self.module(frame).is_none());
        self.has_unknown |= self.module(ip).is_none();
        complete
    }
}

fn unwinding_module(module: &CodeModule) -> Module<Section> {
    let sections = ["eh_frame", "eh_frame_hdr", "debug_frame", "text", "got"];
    let [eh_frame, eh_frame_hdr, debug_frame, text, got] = sections.map(|name| module.section(&format!(".{name}")));
    let (eh_frame_svma, eh_frame) = eh_frame.unzip();
    let (eh_frame_hdr_svma, eh_frame_hdr) = eh_frame_hdr.unzip();
    let (text_svma, text) = text.unzip();
    let info = ExplicitModuleSectionInfo {
        base_svma: 0,
        eh_frame_svma,
        eh_frame,
        eh_frame_hdr_svma,
        eh_frame_hdr,
        debug_frame: debug_frame.map(|(_, section)| section),
        text_svma,
        text,
        got_svma: got.map(|(range, _)| range),
        ..ExplicitModuleSectionInfo::default()
    };
    Module::new(module.name.clone(), module.range.clone(), module.bias, info)
}

/// The instruction pointer, the stack pointer, and all registers as the unwinder takes them.
#[cfg(target_arch = "x86_64")]
fn unwind_registers([bp, sp, ip]: Registers, _highest: u64) -> (u64, u64, UnwindRegsNative) {
    (ip, sp, UnwindRegsNative::new(ip, sp, bp))
}

/// The instruction pointer, the stack pointer, and all registers as the unwinder takes them. `highest` is the highest
/// known address of code.
#[cfg(target_arch = "aarch64")]
fn unwind_registers([fp, lr, sp, pc]: Registers, highest: u64) -> (u64, u64, UnwindRegsNative) {
    // Programs may sign return addresses in the bits that addresses of user space do not use: with most kernels those
    // from 48 on, with some from 39, 42 or 47. Stacks and the kernel's object are at the top of what is used.
    let mask = framehop::aarch64::PtrAuthMask::from_max_known_address(highest.max(sp));
    (pc, sp, UnwindRegsNative::new_with_ptr_auth_mask(mask, lr, sp, fp))
}

#[cfg(test)]
mod tests {
    use super::{MOST_FRAMES, StackUnwinder};
    use crate::sampling::perf::records::Registers;
    use proptest::prelude::*;
    use std::cell::RefCell;

    thread_local!(static UNWINDER: RefCell<StackUnwinder> = RefCell::new({
        let mut unwinder = StackUnwinder::new();
        unwinder.read_modules();
        unwinder
    }));

    /// An address in code or on the stack, or anything.
    fn word() -> impl Strategy<Value = u64> {
        let in_code = any::<(prop::sample::Index, prop::sample::Index)>().prop_map(|(module, at)| {
            UNWINDER.with_borrow(|unwinder| {
                let range = &module.get(&unwinder.modules).1.range;
                range.start + at.index((range.end - range.start) as usize) as u64
            })
        });
        prop_oneof![5 => in_code, 3 => 0x7000_0000_u64..0x7000_1000, 1 => any::<u64>(), 1 => 0_u64..16]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn any_stack_is_unwound_to_an_end(
            registers in prop::collection::vec(word(), Registers::default().len()),
            stack in prop::collection::vec(word(), 0..512),
            odd in 0_usize..8,
        ) {
            let stack: Vec<_> = stack.iter().flat_map(|word| word.to_ne_bytes()).skip(odd).collect();
            let mut frames = Vec::new();
            UNWINDER.with_borrow_mut(|unwinder| {
                unwinder.unwind(registers.try_into().unwrap(), &stack, &mut frames);
            });
            prop_assert!(frames.len() <= MOST_FRAMES);
        }
    }
}
