//! The tables of functions that a tool fills in, and how it reaches them.

use std::{
    ffi::{c_int, c_uint, c_void},
    ptr::{null, null_mut},
    sync::atomic::{AtomicPtr, Ordering},
};

/// The version of NVTX that is spoken here.
pub(crate) const VERSION: u16 = 3;

/// The numbers of the tables (`NvtxCallbackModule`).
pub mod module {
    /// Annotations without a domain.
    pub const CORE: u32 = 1;
    /// Names of the CUDA driver's objects.
    pub const CUDA: u32 = 2;
    /// Names of OpenCL's objects.
    pub const OPENCL: u32 = 3;
    /// Names of the CUDA runtime's objects.
    pub const CUDART: u32 = 4;
    /// Annotations with a domain.
    pub const CORE2: u32 = 5;
    /// Synchronization objects of the program.
    pub const SYNC: u32 = 6;
}

/// The places of the functions in the table [`module::CORE2`] (`NvtxCallbackIdCore2`) that this crate calls.
pub mod callback_id {
    /// `nvtxDomainRangeStartEx`.
    pub const DOMAIN_RANGE_START: usize = 2;
    /// `nvtxDomainRangeEnd`.
    pub const DOMAIN_RANGE_END: usize = 3;
    /// `nvtxDomainRangePushEx`.
    pub const DOMAIN_RANGE_PUSH: usize = 4;
    /// `nvtxDomainRangePop`.
    pub const DOMAIN_RANGE_POP: usize = 5;
    /// `nvtxDomainRegisterStringA`.
    pub const DOMAIN_REGISTER_STRING: usize = 10;
    /// `nvtxDomainCreateA`.
    pub const DOMAIN_CREATE: usize = 12;
}

/// The numbers of the export tables (`NvtxExportTableID`).
pub mod export_table {
    /// Leads to the tables of functions.
    pub const CALLBACKS: u32 = 1;
    /// The version of NVTX.
    pub const VERSION_INFO: u32 = 3;
}

/// A place for the address of a function.
type Slot = AtomicPtr<c_void>;

/// The most functions of a table, with the unused place 0 (`NVTX_CBID_CORE_SIZE`, `NVTX_CBID_CORE2_SIZE`).
const MOST: usize = 16;

/// The slots of a table.
struct Slots([Slot; MOST]);

impl Slots {
    const fn new() -> Self {
        Self([const { AtomicPtr::new(null_mut()) }; MOST])
    }
}

/// A table as a tool sees it: a pointer to each slot, null for the place 0, and null after the last, so that a tool
/// that reads too far crashes at once.
struct Table {
    pointers: [*const Slot; MOST + 1],
    /// The number of places, with the place 0.
    size: c_uint,
}

// SAFETY: the pointers lead to statics that are atomic.
unsafe impl Sync for Table {}

impl Table {
    const fn new(slots: &'static Slots, size: usize) -> Self {
        let mut pointers = [null(); MOST + 1];
        let mut index = 1;
        while index < size {
            pointers[index] = &raw const slots.0[index];
            index += 1;
        }
        Self { pointers, size: size as c_uint }
    }
}

static CORE_SLOTS: Slots = Slots::new();
static CUDA_SLOTS: Slots = Slots::new();
static OPENCL_SLOTS: Slots = Slots::new();
static CUDART_SLOTS: Slots = Slots::new();
static CORE2_SLOTS: Slots = Slots::new();
static SYNC_SLOTS: Slots = Slots::new();

/// All tables, by the numbers in [`module`]. Tools may insist on tables whose functions are never called here. The
/// sizes are the headers' `NVTX_CBID_*_SIZE`.
static TABLES: [Table; 6] = [
    Table::new(&CORE_SLOTS, 16),
    Table::new(&CUDA_SLOTS, 9),
    Table::new(&OPENCL_SLOTS, 15),
    Table::new(&CUDART_SLOTS, 7),
    Table::new(&CORE2_SLOTS, 16),
    Table::new(&SYNC_SLOTS, 7),
];

/// Returns the function at this place of the table [`module::CORE2`], or null if the tool has not written one.
pub(crate) fn core2(id: usize) -> *mut c_void {
    CORE2_SLOTS.0.get(id).map_or(null_mut(), |slot| slot.load(Ordering::Acquire))
}

/// Forgets what a tool has written that failed afterwards.
pub(crate) fn clear() {
    let all = [&CORE_SLOTS, &CUDA_SLOTS, &OPENCL_SLOTS, &CUDART_SLOTS, &CORE2_SLOTS, &SYNC_SLOTS];
    all.into_iter().flat_map(|slots| &slots.0).for_each(|slot| slot.store(null_mut(), Ordering::Release));
}

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    struct_size: usize,
    module_function_table: unsafe extern "C" fn(c_int, *mut *const *const Slot, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    struct_size: usize,
    version: u32,
    reserved: u32,
    set_injection_version: extern "C" fn(u32),
}

static CALLBACKS: Callbacks = Callbacks { struct_size: size_of::<Callbacks>(), module_function_table };

static VERSION_INFO: VersionInfo =
    VersionInfo { struct_size: size_of::<VersionInfo>(), version: VERSION as u32, reserved: 0, set_injection_version };

/// `NvtxGetExportTableFunc_t`: what `InitializeInjectionNvtx2` is given.
pub(crate) extern "C" fn get_export_table(id: u32) -> *const c_void {
    match id {
        export_table::CALLBACKS => (&raw const CALLBACKS).cast(),
        export_table::VERSION_INFO => (&raw const VERSION_INFO).cast(),
        _ => null(),
    }
}

/// `GetModuleFunctionTable`: returns 0 if there is no such table.
///
/// # Safety
///
/// The pointers are null or can be written to.
unsafe extern "C" fn module_function_table(
    module: c_int,
    out_table: *mut *const *const Slot,
    out_size: *mut c_uint,
) -> c_int {
    let index = usize::try_from(module).ok().and_then(|module| module.checked_sub(1));
    let Some(table) = index.and_then(|index| TABLES.get(index)) else { return 0 };
    // SAFETY: the caller vouches for the pointer, unless it is null.
    if let Some(out_size) = unsafe { out_size.as_mut() } {
        *out_size = table.size;
    }
    // SAFETY: as above.
    if let Some(out_table) = unsafe { out_table.as_mut() } {
        *out_table = table.pointers.as_ptr();
    }
    1
}

/// `SetInjectionNvtxVersion`, which NVIDIA's headers ignore, too.
extern "C" fn set_injection_version(_: u32) {}

#[cfg(test)]
mod tests {
    use super::{Callbacks, VersionInfo, get_export_table, module, module_function_table};
    use std::ptr::{null, null_mut};

    #[test]
    fn tables_have_the_sizes_of_the_headers() {
        let mut sizes = Vec::new();
        for module in [module::CORE, module::CUDA, module::OPENCL, module::CUDART, module::CORE2, module::SYNC] {
            let (mut table, mut size) = (null(), 0);
            // SAFETY: both can be written to.
            assert_eq!(unsafe { module_function_table(module as i32, &raw mut table, &raw mut size) }, 1);
            // SAFETY: the table has that many places, and one more.
            let places = unsafe { std::slice::from_raw_parts(table, size as usize + 1) };
            assert!(places[0].is_null() && places[size as usize].is_null());
            assert!(places[1..size as usize].iter().all(|slot| !slot.is_null()));
            sizes.push(size);
        }
        assert_eq!(sizes, [16, 9, 15, 7, 16, 7]);
        for module in [0, 7, -1] {
            // SAFETY: null is allowed.
            assert_eq!(unsafe { module_function_table(module, null_mut(), null_mut()) }, 0);
        }
    }

    #[test]
    fn export_tables_have_the_layout_of_the_headers() {
        assert_eq!((size_of::<Callbacks>(), size_of::<VersionInfo>()), (16, 24));
        assert!(!get_export_table(1).is_null() && !get_export_table(3).is_null());
        assert!(get_export_table(0).is_null() && get_export_table(2).is_null());
    }
}
