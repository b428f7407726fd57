//! The library in which NCCL finds the plugin: a few hundred bytes of ELF in memory, made when the program runs.
//!
//! NCCL opens `libnccl-profiler.so` unless `NCCL_PROFILER_PLUGIN` names another library. The dynamic linker returns a
//! library of that name that is loaded already, so one is loaded whose tables point to the functions of this program.
//! Neither a file, an environment variable nor an option of the linker is needed, and child processes inherit nothing.

#![allow(unsafe_code, reason = "a library is loaded")]

use crate::abi;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::{
    ffi::{CStr, c_void},
    fs::File,
    io::{self, Write},
    mem::ManuallyDrop,
    os::fd::{AsRawFd, IntoRawFd},
    sync::Mutex,
};

/// The name under which NCCL looks for a plugin.
pub(crate) const NAME: &str = "libnccl-profiler.so";
/// The name that NCCL prints in its log.
const PLUGIN: &CStr = c"kernspan";

/// Loads the library, unless that has been done. It is never unloaded, since NCCL may call it until the process ends.
pub(crate) fn load() -> io::Result<()> {
    static LOADED: Mutex<bool> = Mutex::new(false);
    let mut loaded = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if *loaded {
        return Ok(());
    }
    let tables = abi::tables();
    let file = rustix::fs::memfd_create("kernspan-nccl", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(&image(&tables))?;
    // It stays open: its number is in the path, by which the linker recognizes a library as well.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: the library has no code, and so nothing that runs when it is loaded.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.map_err(io::Error::other)?;
    let library = ManuallyDrop::new(library);
    let _ = file.into_raw_fd();
    // SAFETY: whatever library is returned is loaded already.
    let found = unsafe { Library::open(Some(NAME), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) }.map_err(io::Error::other)?;
    if address(&found, tables[0].0)? != address(&library, tables[0].0)? {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("another {NAME} is loaded")));
    }
    *loaded = true;
    Ok(())
}

/// Only returns a library that is loaded. The value is Linux's.
const RTLD_NOLOAD: i32 = 4;

fn address(library: &Library, symbol: &str) -> io::Result<usize> {
    // SAFETY: only the address is used.
    let found = unsafe { library.get::<*const c_void>(symbol.as_bytes()) }.map_err(io::Error::other)?;
    Ok(found.as_raw_ptr().addr())
}

/// Returns an ELF library that defines each table: a pointer to the name of the plugin, then the functions. All
/// addresses of functions are those of this process, so that nothing is relocated.
fn image(tables: &[(&str, [usize; 5])]) -> Vec<u8> {
    let strings = Strings::new(tables);
    // The parts, one after another: header, program headers, dynamic section, symbols, hash table, tables, strings.
    let symbols = tables.len() as u64 + 1;
    let dynamic_at = HEADER + 3 * PROGRAM_HEADER;
    let symbols_at = dynamic_at + 7 * DYNAMIC;
    let hash_at = symbols_at + symbols * SYMBOL;
    let tables_at = hash_at + (2 + 1 + symbols).next_multiple_of(2) * 4;
    let strings_at = tables_at + tables.len() as u64 * TABLE;
    let end = strings_at + strings.bytes.len() as u64;

    let mut out = Vec::new();
    // The header: ELF, 64 bits, little-endian, version 1; a shared library for this machine.
    out.extend(b"\x7fELF\x02\x01\x01");
    out.resize(16, 0);
    halves(&mut out, &[3, MACHINE]);
    words(&mut out, &[1]);
    longs(&mut out, &[0, HEADER, 0]);
    words(&mut out, &[0]);
    halves(&mut out, &[HEADER as u16, PROGRAM_HEADER as u16, 3, 64, 0, 0]);
    // One segment with everything, the dynamic section in it, and the fact that no stack needs to be executable.
    program_header(&mut out, 1, [0, end], 0x1_0000);
    program_header(&mut out, 2, [dynamic_at, 7 * DYNAMIC], 8);
    program_header(&mut out, 0x6474_e551, [0, 0], 16);
    // The library's own name; hash table, strings, symbols; the sizes of strings and of a symbol; the end.
    longs(&mut out, &[14, strings.library]);
    longs(&mut out, &[4, hash_at, 5, strings_at, 6, symbols_at]);
    longs(&mut out, &[10, strings.bytes.len() as u64, 11, SYMBOL, 0, 0]);
    // The symbols; the first is always empty. Each is a global object in some section.
    longs(&mut out, &[0, 0, 0]);
    for (index, name) in strings.tables.iter().enumerate() {
        words(&mut out, &[*name as u32]);
        out.extend([0x11, 0]);
        halves(&mut out, &[1]);
        longs(&mut out, &[tables_at + index as u64 * TABLE, TABLE]);
    }
    // The hash table: one bucket, whose chain goes through all symbols.
    words(&mut out, &[1, symbols as u32, 1, 0]);
    words(&mut out, &(2..=symbols).map(|next| if next < symbols { next as u32 } else { 0 }).collect::<Vec<_>>());
    out.resize(tables_at as usize, 0);
    for (_, functions) in tables {
        // NCCL only prints the name, which is a constant of this program.
        longs(&mut out, &[PLUGIN.as_ptr().addr() as u64]);
        longs(&mut out, &functions.map(|function| function as u64));
    }
    out.extend(strings.bytes);
    out
}

// Sizes of parts of an ELF file of 64 bits, and of a table.
const HEADER: u64 = 64;
const PROGRAM_HEADER: u64 = 56;
const DYNAMIC: u64 = 16;
const SYMBOL: u64 = 24;
const TABLE: u64 = 6 * 8;

/// The number of the machine in an ELF header: that of x86-64 or of AArch64.
const MACHINE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };

/// The strings, and where each begins.
struct Strings {
    bytes: Vec<u8>,
    library: u64,
    tables: Vec<u64>,
}

impl Strings {
    fn new(tables: &[(&str, [usize; 5])]) -> Self {
        let mut bytes = vec![0];
        let mut add = |text: &str| {
            let at = bytes.len() as u64;
            bytes.extend(text.bytes().chain([0]));
            at
        };
        let library = add(NAME);
        let tables = tables.iter().map(|(name, _)| add(name)).collect();
        Self { bytes, library, tables }
    }
}

/// Writes the header of a segment that can be read and written.
fn program_header(out: &mut Vec<u8>, kind: u32, [at, size]: [u64; 2], align: u64) {
    words(out, &[kind, 6]);
    longs(out, &[at, at, at, size, size, align]);
}

fn halves(out: &mut Vec<u8>, numbers: &[u16]) {
    numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
}

fn words(out: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
}

fn longs(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
}
