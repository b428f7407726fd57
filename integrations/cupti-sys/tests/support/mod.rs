//! Real releases of CUPTI from Python wheels, and C compilation with their headers.
//!
//! The wheels are kept where `downloads.rs` puts them. Without Python or a C compiler the tests say so and pass, but
//! with `CI=true` they fail.

#![allow(dead_code, reason = "each test file uses its own part")]

#[path = "../../../../tests/support/downloads.rs"]
#[allow(unreachable_pub, reason = "shared with the tests of kernspan")]
mod downloads;
#[path = "../../../../tests/support/wheels.rs"]
#[allow(unreachable_pub, reason = "shared with the tests of kernspan")]
mod wheels;

use self::wheels::{files_under, missing, run, unpack};
use cupti_sys::{
    ActivityApi, ActivityKernel, ActivityMemcpy, ActivityMemcpyPtoP, ActivityMemset, ActivityOverhead,
    ActivitySynchronization, CallbackData, MemAllocParams, MemAllocPitchParams, MemFreeParams, MemcpyToDeviceParams,
    kind, read,
};
use std::{fs, path::PathBuf, process::Command, sync::OnceLock};

// Before 13.0, `crt/host_defines.h` is only in the compiler's wheel, which is big. The header has only macros for
// function attributes, so the one of 13.0 serves older releases, too.
const HOST_DEFINES: &str = "nvidia-cuda-crt==13.0.88";

/// Releases of CUDA with their wheels, the oldest first.
const RELEASES: [(&str, [&str; 3]); 5] = [
    ("12.0", ["nvidia-cuda-cupti-cu12==12.0.146", "nvidia-cuda-runtime-cu12==12.0.146", HOST_DEFINES]),
    ("12.4", ["nvidia-cuda-cupti-cu12==12.4.127", "nvidia-cuda-runtime-cu12==12.4.127", HOST_DEFINES]),
    ("12.9", ["nvidia-cuda-cupti-cu12==12.9.79", "nvidia-cuda-runtime-cu12==12.9.79", HOST_DEFINES]),
    ("13.0", ["nvidia-cuda-cupti==13.0.85", "nvidia-cuda-runtime==13.0.96", "nvidia-cuda-crt==13.0.88"]),
    ("13.4", ["nvidia-cuda-cupti==13.4.92", "nvidia-cuda-runtime==13.4.92", "nvidia-cuda-crt==13.4.92"]),
];

/// Returns the releases, the oldest first; nothing if there is no Python or no C compiler.
pub(crate) fn releases() -> impl DoubleEndedIterator<Item = Release> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let found = run(Command::new("cc").arg("--version")).ok().and_then(|_| unpack("cupti-headers", &RELEASES));
        if found.is_none() {
            missing("no cc, or no python3 with venv: NVIDIA's headers and libraries do NOT check cupti-sys");
        }
        found
    });
    let releases = folder.as_ref().map(|folder| RELEASES.map(|(name, _)| Release { name, root: folder.join(name) }));
    releases.into_iter().flatten()
}

/// A release of CUDA.
pub(crate) struct Release {
    pub(crate) name: &'static str,
    root: PathBuf,
}

impl Release {
    /// Returns the path of the library.
    pub(crate) fn library(&self) -> PathBuf {
        let ending = format!("libcupti.so.{}", &self.name[..2]);
        let [library] = files_under(&self.root, &ending).try_into().unwrap();
        library
    }

    /// Returns the text of all of CUPTI's headers.
    pub(crate) fn headers(&self) -> String {
        let headers = files_under(&self.root, ".h");
        let named = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("cupti_");
        headers.into_iter().filter(named).map(|path| fs::read_to_string(path).unwrap()).collect()
    }

    /// Compiles C source that includes the release's headers.
    pub(crate) fn compile(&self, source: &str, arguments: &[&str]) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("check.c");
        // The first releases lack the last two. `cupti_profiler_host.h` includes headers of C++, without any use.
        let headers = ["target", "profiler_target", "profiler_host", "pmsampling"]
            .map(|name| format!("#if __has_include(<cupti_{name}.h>)\n#include <cupti_{name}.h>\n#endif\n"));
        ["string", "vector"].iter().for_each(|name| fs::write(folder.path().join(name), "").unwrap());
        let includes = format!("#include <stddef.h>\n#include <stdint.h>\n#include <cupti.h>\n{}", headers.concat());
        fs::write(&file, format!("{includes}{source}")).unwrap();
        let mut cc = Command::new("cc");
        cc.arg("-I").arg(folder.path());
        for header in ["cuda.h", "cupti.h", "crt/host_defines.h"] {
            let found = files_under(&self.root, &format!("/{header}"));
            let [path] = found.as_slice() else { panic!("{header} of {}: {found:?}", self.name) };
            cc.arg("-I").arg(path.to_str().unwrap().strip_suffix(header).unwrap());
        }
        run(cc.args(arguments).arg(&file)).map(drop)
    }

    /// Returns the newest version of a struct in the headers: `CUpti_ActivityKernel` is `CUpti_ActivityKernel13` in
    /// 13.4.
    pub(crate) fn newest(&self, name: &str) -> String {
        let headers = self.headers();
        let versions = headers.lines().filter_map(|line| {
            let number = line.strip_prefix("} ")?.strip_prefix(name)?.strip_suffix(';')?;
            if number.is_empty() { Some(1) } else { number.parse::<u32>().ok() }
        });
        match versions.max() {
            Some(1) => name.to_owned(),
            Some(version) => format!("{name}{version}"),
            None => panic!("{} has no {name}", self.name),
        }
    }
}

/// One of our structs and its counterparts in C.
pub(crate) struct Struct {
    pub(crate) name: &'static str,
    /// C structs with the same leading fields; of a record's versions, the newest one.
    pub(crate) c_names: &'static [&'static str],
    pub(crate) fields: &'static [(&'static str, usize, &'static str)],
}

pub(crate) const CALLBACK_STRUCTS: [Struct; 5] = [
    Struct { name: "CallbackData", c_names: &["CUpti_CallbackData"], fields: CallbackData::FIELDS },
    Struct {
        name: "MemAllocParams",
        c_names: &[
            "cuMemAlloc_v2_params",
            "cuMemAllocManaged_params",
            "cuMemAllocAsync_params",
            "cuMemAllocAsync_ptsz_params",
            "cuMemAllocFromPoolAsync_params",
            "cuMemAllocFromPoolAsync_ptsz_params",
        ],
        fields: MemAllocParams::FIELDS,
    },
    Struct {
        name: "MemAllocPitchParams",
        c_names: &["cuMemAllocPitch_v2_params"],
        fields: MemAllocPitchParams::FIELDS,
    },
    Struct {
        name: "MemFreeParams",
        c_names: &["cuMemFree_v2_params", "cuMemFreeAsync_params", "cuMemFreeAsync_ptsz_params"],
        fields: MemFreeParams::FIELDS,
    },
    Struct {
        name: "MemcpyToDeviceParams",
        c_names: &["cuMemcpyHtoDAsync_v2_params", "cuMemcpyHtoDAsync_v2_ptsz_params"],
        fields: MemcpyToDeviceParams::FIELDS,
    },
];

/// A prefix struct, with the kinds of records that it is for and a function that reads one and prints it.
pub(crate) struct Record {
    pub(crate) kinds: &'static [u32],
    pub(crate) layout: Struct,
    pub(crate) read: fn(&[u8]) -> Option<String>,
}

macro_rules! records {
    ($($name:ident = $c_name:literal: $($kind:ident),*;)*) => {
        &[$(Record {
            kinds: &[$(kind::$kind),*],
            layout: Struct { name: stringify!($name), c_names: &[$c_name], fields: $name::FIELDS },
            read: |bytes| read::<$name>(bytes).map(|record| format!("{record:?}")),
        }),*]
    };
}

pub(crate) const RECORDS: &[Record] = records! {
    ActivityKernel = "CUpti_ActivityKernel": CONCURRENT_KERNEL;
    ActivityApi = "CUpti_ActivityAPI": DRIVER, RUNTIME;
    ActivityMemcpy = "CUpti_ActivityMemcpy": MEMCPY;
    ActivityMemcpyPtoP = "CUpti_ActivityMemcpyPtoP": MEMCPY2;
    ActivityMemset = "CUpti_ActivityMemset": MEMSET;
    ActivitySynchronization = "CUpti_ActivitySynchronization": SYNCHRONIZATION;
    ActivityOverhead = "CUpti_ActivityOverhead": OVERHEAD;
};

/// Returns the names of a field in C; a field of a union has several.
pub(crate) fn c_fields(of: &str, field: &str) -> Vec<String> {
    let exceptions: &[_] = match (of, field) {
        ("ActivityKernel", "cache_config") => &["cacheConfig.both"],
        ("ActivityOverhead", "process_id") => &["objectId.pt.processId", "objectId.dcs.deviceId"],
        ("ActivityOverhead", "thread_id") => &["objectId.pt.threadId", "objectId.dcs.contextId"],
        ("ActivityOverhead", "stream_id") => &["objectId.dcs.streamId"],
        ("MemAllocPitchParams", "pitch") => &["pPitch"],
        ("MemAllocPitchParams", "width") => &["WidthInBytes"],
        ("MemAllocPitchParams", "height") => &["Height"],
        ("MemcpyToDeviceParams", "byte_count") => &["ByteCount"],
        (_, "channel_id") => &["channelID"],
        _ => &[],
    };
    if !exceptions.is_empty() {
        return exceptions.iter().map(|&name| name.to_owned()).collect();
    }
    let mut words = field.trim_start_matches("r#").split('_');
    let mut name = words.next().unwrap().to_owned();
    for word in words {
        name.push_str(&word[..1].to_uppercase());
        name.push_str(&word[1..]);
    }
    vec![name]
}

/// Returns the size of one of our types in bytes, and the class of C types that it stands for.
pub(crate) fn bytes_and_class(rust_type: &str) -> (usize, Class) {
    match rust_type {
        "u8" => (1, Class::Unsigned),
        "u16" => (2, Class::Unsigned),
        "u32" => (4, Class::Unsigned),
        "u64" | "usize" => (8, Class::Unsigned),
        "i32" => (4, Class::Signed),
        "i64" => (8, Class::Signed),
        "BufferRequested" | "BufferCompleted" | "Callback" => (8, Class::Pointer),
        pointer if pointer.starts_with('*') => (8, Class::Pointer),
        other => panic!("no C type is known for {other}"),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Unsigned,
    Signed,
    Pointer,
}

impl Class {
    /// Returns a C expression that is true if the type belongs to this class.
    pub(crate) fn holds_for(self, c_type: &str) -> String {
        // 5 is `pointer_type_class` in GCC's typeclass.h, and in clang.
        let is_pointer = format!("__builtin_classify_type(({c_type})0) == 5");
        match self {
            Self::Pointer => is_pointer,
            Self::Unsigned => format!("!({is_pointer}) && ({c_type})-1 > ({c_type})0"),
            Self::Signed => format!("!({is_pointer}) && ({c_type})-1 < ({c_type})0"),
        }
    }
}
