//! The program and its shared libraries, as they are mapped into this process.

use super::sys::map_file;
use memmap2::Mmap;
use object::{Object, ObjectSection, ObjectSegment, SegmentFlags};
use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    ops::{Deref, Range},
    path::{Path, PathBuf},
    sync::Arc,
};

/// A range of executable memory, with the file that it is mapped from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) range: Range<u64>,
    offset: u64,
    /// Empty for anonymous memory; a name in brackets for memory of the kernel.
    path: String,
}

impl Mapping {
    /// Reads the executable mappings of this process, in the order of their addresses.
    pub(super) fn all() -> Vec<Self> {
        fs::read("/proc/self/maps").map(|text| Self::parse(&String::from_utf8_lossy(&text))).unwrap_or_default()
    }

    /// Returns the executable mappings in the text of a `maps` file.
    pub(super) fn parse(maps: &str) -> Vec<Self> {
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let mapping = |line: &str| {
            let mut fields = line.splitn(6, ' ');
            let (start, end) = fields.next()?.split_once('-')?;
            let executable = fields.next()?.contains('x');
            let offset = hex(fields.next()?)?;
            let path = fields.nth(2).unwrap_or("").trim_start().to_owned();
            executable.then_some(Self { range: hex(start)?..hex(end)?, offset, path })
        };
        maps.lines().filter_map(mapping).collect()
    }
}

/// The bytes of a mapped file, or of memory that was copied.
#[derive(Debug)]
enum ModuleBytes {
    File(Mmap),
    Copy(Vec<u8>),
}

impl Default for ModuleBytes {
    fn default() -> Self {
        Self::Copy(Vec::new())
    }
}

impl Deref for ModuleBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::File(map) => map,
            Self::Copy(bytes) => bytes,
        }
    }
}

/// A part of a module's file.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    bytes: Arc<ModuleBytes>,
    range: Range<usize>,
}

impl Deref for Section {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

/// A file with code that is mapped into this process, or other executable memory.
#[derive(Debug)]
pub(super) struct CodeModule {
    /// The name that users know: the name of the file, without its folder.
    pub(super) name: String,
    /// Where its code is.
    pub(super) range: Range<u64>,
    /// The address in memory minus the address in the file.
    pub(super) bias: u64,
    /// Where the file can be opened, if it is still the one that was mapped.
    pub(super) file: Option<PathBuf>,
    bytes: Option<Arc<ModuleBytes>>,
}

impl CodeModule {
    /// Opens the file of a mapping. Code that is in no file, or in one that cannot be read, has a name only.
    pub(super) fn open(mapping: &Mapping) -> Self {
        let (bytes, file) = match Self::bytes(mapping) {
            Some((bytes, file)) => (Some(Arc::new(bytes)), file),
            None => (None, None),
        };
        let name = match mapping.path.rsplit('/').next().unwrap_or("") {
            "" => "[jit]".to_owned(),
            name => name.strip_suffix(" (deleted)").unwrap_or(name).to_owned(),
        };
        let bias = bytes.as_ref().and_then(|bytes| bias(bytes, mapping));
        Self {
            name,
            range: mapping.range.clone(),
            bias: bias.unwrap_or(0),
            file: file.filter(|_| bias.is_some()),
            bytes,
        }
    }

    fn bytes(mapping: &Mapping) -> Option<(ModuleBytes, Option<PathBuf>)> {
        if mapping.path == "[vdso]" {
            let mut memory = File::open("/proc/self/mem").ok()?;
            memory.seek(SeekFrom::Start(mapping.range.start)).ok()?;
            let mut bytes = vec![0; usize::try_from(mapping.range.end - mapping.range.start).ok()?];
            memory.read_exact(&mut bytes).ok()?;
            return Some((ModuleBytes::Copy(bytes), None));
        }
        if !mapping.path.starts_with('/') {
            return None;
        }
        // The program's own file can be opened even after it was removed, as a build does while the program runs.
        let is_program = fs::read_link("/proc/self/exe").is_ok_and(|program| program == Path::new(&mapping.path));
        let path = match mapping.path.ends_with(" (deleted)") {
            _ if is_program => Path::new("/proc/self/exe"),
            true => return None,
            false => Path::new(&mapping.path),
        };
        Some((ModuleBytes::File(map_file(&File::open(path).ok()?).ok()?), Some(path.to_owned())))
    }

    /// The bytes of the file.
    pub(super) fn data(&self) -> Option<&[u8]> {
        self.bytes.as_deref().map(Deref::deref)
    }

    /// A section of the file with the address that the file gives it.
    pub(super) fn section(&self, name: &str) -> Option<(Range<u64>, Section)> {
        let bytes = self.bytes.as_ref()?;
        let file = object::File::parse(&***bytes).ok()?;
        let section = file.section_by_name(name)?;
        let (offset, size) = section.file_range()?;
        let (start, end) = (usize::try_from(offset).ok()?, usize::try_from(offset.checked_add(size)?).ok()?);
        bytes.get(start..end)?;
        let address = section.address();
        Some((address..address.checked_add(size)?, Section { bytes: Arc::clone(bytes), range: start..end }))
    }
}

/// How far the file's addresses are from those in memory.
fn bias(bytes: &[u8], mapping: &Mapping) -> Option<u64> {
    let file = object::File::parse(bytes).ok()?;
    let holds = |offset: u64, (start, size): (u64, u64)| {
        // Segments are mapped in whole pages.
        let page = rustix::param::page_size() as u64;
        start / page * page <= offset && offset < start.saturating_add(size)
    };
    // The first page of a segment may also be the last one of the segment before, which is not executable.
    let executes = |flags| matches!(flags, SegmentFlags::Elf { p_flags } if p_flags & object::elf::PF_X != 0);
    let mut segments = file.segments().filter(|segment| executes(segment.flags()));
    let segment = segments.find(|segment| holds(mapping.offset, segment.file_range()))?;
    let address = mapping.offset.wrapping_sub(segment.file_range().0).wrapping_add(segment.address());
    Some(mapping.range.start.wrapping_sub(address))
}

#[cfg(test)]
mod tests {
    use super::{CodeModule, Mapping};
    use proptest::prelude::*;

    #[test]
    fn mappings_are_parsed() {
        let maps = "\
            5591e0400000-5591e0500000 r--p 00000000 fe:00 42                         /opt/my program\n\
            5591e0500000-5591e0600000 r-xp 00100000 fe:00 42                         /opt/my program\n\
            7f0000000000-7f0000001000 rwxp 00000000 00:00 0 \n\
            7ffd1c3f2000-7ffd1c3f4000 r-xp 00000000 00:00 0                          [vdso]\n";
        let found: Vec<_> = Mapping::parse(maps).into_iter().map(|it| (it.range.start, it.offset, it.path)).collect();
        let expected = [
            (0x5591_e050_0000, 0x10_0000, "/opt/my program".to_owned()),
            (0x7f00_0000_0000, 0, String::new()),
            (0x7ffd_1c3f_2000, 0, "[vdso]".to_owned()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn this_program_and_the_kernels_object_are_found() {
        let modules: Vec<_> = Mapping::all().iter().map(CodeModule::open).collect();
        let here = mappings_are_parsed as fn() as usize as u64;
        let module = modules.iter().find(|module| module.range.contains(&here)).unwrap();
        assert_eq!(module.name, std::env::current_exe().unwrap().file_name().unwrap().to_str().unwrap());
        let (text, _) = module.section(".text").unwrap();
        assert!(text.contains(&(here - module.bias)));
        let vdso = modules.iter().find(|module| module.name == "[vdso]").unwrap();
        assert!(vdso.section(".eh_frame").is_some());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed(text in "[0-9a-fx -]{0,40}\n?[\\PC]{0,40}") {
            prop_assert!(Mapping::parse(&text).len() <= 2);
        }
    }
}
