//! Where a sampled frame comes from: the program itself, a library, or the runtime around both.

use crate::trace::StackFrame;
use rustc_hash::FxHashSet;

/// The origin of a frame, by which tables fold it.
///
/// A frame with a source file is judged by that, as the path of an inlined function's name may be missing. Without one,
/// the name of the function has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameOrigin {
    /// Source of the program: not from a registry, a checkout of Git or a vendored folder.
    Own,
    /// A crate of others, or a library without source, such as CUDA's.
    Library,
    /// The C library and what comes with it: part of the runtime if that called it, to wait or to allocate, or if
    /// nothing did, as it starts threads. Otherwise, a library.
    System,
    /// Code that only runs other code or is too low to be of interest: the standard library, tokio, rayon, crossbeam,
    /// tracing, kernspan, and what starts a program or a thread. Its time belongs to its caller.
    Runtime,
}

/// Crates whose frames are folded. A name stands for those that begin with it and an underscore or a hyphen, too.
const RUNTIME_CRATES: [&str; 9] =
    ["std", "core", "alloc", "tokio", "rayon", "crossbeam", "tracing", "kernspan", "hashbrown"];

/// Functions that start a program or a thread.
const START: [&str; 8] = [
    "_start",
    "main",
    "__libc_start_main",
    "__libc_start_call_main",
    "__libc_start_main_impl",
    "start_thread",
    "clone",
    "clone3",
];

/// The folders of the standard library's sources: where it was built, where `rust-src` has them, its dependencies.
const STANDARD_LIBRARY: [&str; 3] = ["/rustc/", "/rustlib/src/rust/library/", "/rust/deps/"];

/// The folder in which Cargo keeps crates of registries. A folder of the registry and one of the crate follow.
const REGISTRIES: &str = "/registry/src/";
/// The folder in which Cargo keeps repositories. A folder of the repository and one of the revision follow.
const REPOSITORIES: &str = "/git/checkouts/";
/// The folder for which `cargo vendor` is usually asked. One of the crate follows.
const VENDORED: &str = "/vendor/";

/// The C library and what comes with it. They may have source files, from separate debug information.
const SYSTEM_LIBRARIES: [&str; 10] = [
    "libc.so",
    "libc-",
    "libm.so",
    "libpthread",
    "libdl.so",
    "libgcc_s",
    "libstdc++",
    "ld-linux",
    "[vdso]",
    "linux-vdso",
];

/// NVIDIA's libraries, which may have source files, too.
const NVIDIA_LIBRARIES: [&str; 3] = ["libcu", "libnv", "libnccl"];

impl FrameOrigin {
    /// Returns the origins of a trace's frames.
    pub(super) fn of_all(frames: &[StackFrame]) -> Vec<Self> {
        // kernspan is a path dependency of its own examples. Line tables name inlined functions without their crate,
        // but others of the same package have it.
        let is_named = |frame: &&StackFrame| is_kernspan(frame.function().split("::").next().unwrap_or(""));
        let kernspan: FxHashSet<_> = frames.iter().filter(is_named).filter_map(package).collect();
        let origin = |frame| match Self::of(frame) {
            Self::Own if package(frame).is_some_and(|package| kernspan.contains(package)) => Self::Runtime,
            origin => origin,
        };
        frames.iter().map(origin).collect()
    }

    /// Returns the origin of a frame.
    fn of(frame: &StackFrame) -> Self {
        let path = crate_of_function(frame.function());
        if START.contains(&frame.function()) && frame.file().is_none_or(is_system_source) {
            return Self::Runtime;
        }
        match frame.file() {
            _ if begins_with(frame.library(), &SYSTEM_LIBRARIES) => Self::System,
            _ if begins_with(frame.library(), &NVIDIA_LIBRARIES) => Self::Library,
            Some(file) if STANDARD_LIBRARY.iter().any(|folder| file.contains(folder)) => Self::Runtime,
            Some(file) => match downloaded(file) {
                Some((name, _)) if is_runtime(name) => Self::Runtime,
                Some(_) => Self::Library,
                None if is_kernspan(path) => Self::Runtime,
                None => Self::Own,
            },
            None if is_runtime(path) || path.starts_with("__rust") => Self::Runtime,
            None => Self::Library,
        }
    }
}

/// Returns the place of a frame, such as `src/model.rs:42`. The folder of a registry or of the standard library is left
/// out: `candle-core-0.9.1/src/tensor.rs:9`, `core/src/iter/range.rs:7`.
pub(super) fn place(frame: &StackFrame) -> Option<String> {
    let (file, line) = (frame.file()?, frame.line());
    let downloaded = downloaded(file).map(|(_, path)| path);
    let short = downloaded.or_else(|| Some(file.split_once("/rustc/")?.1.split_once("/library/")?.1));
    let file = short.unwrap_or_else(|| file.strip_prefix("./").unwrap_or(file));
    Some(line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}")))
}

fn begins_with(library: &str, names: &[&str]) -> bool {
    names.iter().any(|name| library.starts_with(name))
}

/// Whether a crate is kernspan or one of its integrations.
fn is_kernspan(name: &str) -> bool {
    name == "kernspan" || name.starts_with("kernspan_")
}

/// Returns the folder of the package that a frame's source is in.
fn package(frame: &StackFrame) -> Option<&str> {
    Some(frame.file()?.rsplit_once("/src/")?.0)
}

fn is_system_source(file: &str) -> bool {
    file.starts_with("./") || file.starts_with("../") || file.contains("glibc")
}

fn is_runtime(name: &str) -> bool {
    let is =
        |known: &&str| name.strip_prefix(*known).is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '-']));
    RUNTIME_CRATES.iter().any(is)
}

/// Returns the folder of the crate or the repository that Cargo has downloaded a file with, which begins with its name,
/// and the part of the path that says where it is: `candle-core-0.9.1/src/tensor.rs`.
fn downloaded(file: &str) -> Option<(&str, &str)> {
    if let Some((_, path)) = file.split_once(REPOSITORIES) {
        let (repository, path) = path.split_once('/')?;
        return Some((repository, path.split_once('/')?.1));
    }
    let in_registry = || Some(file.split_once(REGISTRIES)?.1.split_once('/')?.1);
    let path = in_registry().or_else(|| Some(file.split_once(VENDORED)?.1))?;
    Some((path.split('/').next()?, path))
}

/// Returns the crate of a function: the first part of its path, or of its type's if it is a method of a trait.
fn crate_of_function(function: &str) -> &str {
    let path = function.trim_start_matches(['<', '&', '*', '(', '[', ' ']);
    let path = ["mut ", "const ", "dyn "].iter().fold(path, |path, word| path.strip_prefix(word).unwrap_or(path));
    path.split_once("::").map_or(path, |(first, _)| first)
}

#[cfg(test)]
mod tests {
    use super::{FrameOrigin, place};
    use crate::trace::sample::frame;

    const REGISTRY: &str = "/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f";

    #[test]
    fn frames_are_told_apart_by_their_source() {
        use FrameOrigin::{Library, Own, Runtime, System};
        for (function, file, library, expected) in [
            ("train::model::forward", "src/model.rs:1", "train", Own),
            ("forward", "/home/me/train/src/model.rs:1", "train", Own),
            ("main", "src/main.rs:1", "train", Own),
            ("<train::Model as core::clone::Clone>::clone", "src/model.rs:1", "train", Own),
            ("plugin::run", "/home/me/plugin/src/lib.rs:1", "libplugin.so", Own),
            ("stdx::run", "src/lib.rs:1", "train", Own),
            ("in_scope<train::main::{closure_env#0}>", "REGISTRY/tracing-0.1.41/src/span.rs:1", "train", Runtime),
            ("rayon_core::join", "REGISTRY/rayon-core-1.12.1/src/join/mod.rs:1", "train", Runtime),
            ("crossbeam_deque::Stealer::steal", "REGISTRY/crossbeam-deque-0.8.6/src/deque.rs:1", "train", Runtime),
            ("next", "/rustc/59807616e1fa/library/core/src/iter/range.rs:7", "train", Runtime),
            ("find", "/rust/deps/hashbrown-0.15.2/src/raw/mod.rs:7", "train", Runtime),
            ("kernspan::host::layer::enter", "src/host/layer.rs:3", "train", Runtime),
            ("gemm_f32::kernel", "REGISTRY/gemm-f32-0.18.2/src/lib.rs:1", "train", Library),
            ("candle_core::matmul", "/home/me/.cargo/git/checkouts/candle-1/ab/candle-core/src/lib.rs:1", "t", Library),
            ("next", "/home/me/.cargo/git/checkouts/tokio-1/ab/tokio/src/sync/mpsc/mod.rs:1", "train", Runtime),
            ("burn::forward", "/home/me/train/vendor/burn/src/lib.rs:1", "train", Library),
            ("__memmove_avx_unaligned_erms", "", "libc.so.6", System),
            ("__GI___libc_write", "../sysdeps/unix/sysv/linux/write.c:26", "libc.so.6", System),
            ("0x1f2c4", "", "libcuda.so.1", Library),
            ("train::model::forward", "", "train", Library),
            ("<&mut dyn core::fmt::Write as core::fmt::Write>::write_str", "", "train", Runtime),
            ("__rust_begin_short_backtrace", "", "train", Runtime),
            ("tokio::runtime::park::Inner::park", "", "train", Runtime),
            ("_start", "", "train", Runtime),
            ("start_thread", "./nptl/pthread_create.c:447", "libc.so.6", Runtime),
        ] {
            let file = file.replace("REGISTRY", REGISTRY);
            assert_eq!(FrameOrigin::of(&frame(function, &file, library)), expected, "{function} at {file}");
        }
    }

    #[test]
    fn inlined_functions_of_kernspan_are_known_by_their_package() {
        let frames = [
            frame("kernspan_candle::op::Op::run", "/home/me/kernspan/integrations/candle/src/op.rs:9", "train"),
            frame("{closure#0}<Conv2d>", "/home/me/kernspan/integrations/candle/src/nn/traced.rs:9", "train"),
            frame("{closure#0}", "/home/me/kernspan/examples/train/src/main.rs:9", "train"),
            // A trait of the program for a type of kernspan.
            frame("<kernspan_candle::Profiled<O> as train::Step>::step", "/home/me/train/src/step.rs:9", "train"),
            frame("{closure#0}", "/home/me/train/src/main.rs:9", "train"),
        ];
        use FrameOrigin::{Own, Runtime};
        assert_eq!(FrameOrigin::of_all(&frames), [Runtime, Runtime, Own, Runtime, Own]);
    }

    #[test]
    fn places_are_short() {
        for (file, expected) in [
            ("src/model.rs:42", "src/model.rs:42"),
            ("./src/model.rs:42", "src/model.rs:42"),
            ("REGISTRY/candle-core-0.9.1/src/tensor.rs:9", "candle-core-0.9.1/src/tensor.rs:9"),
            ("/home/me/.cargo/git/checkouts/candle-1/ab/candle-core/src/lib.rs:1", "candle-core/src/lib.rs:1"),
            ("/rustc/59807616e1fa/library/core/src/iter/range.rs:7", "core/src/iter/range.rs:7"),
        ] {
            let file = file.replace("REGISTRY", REGISTRY);
            assert_eq!(place(&frame("f", &file, "train")).as_deref(), Some(expected));
        }
        assert_eq!(place(&frame("f", "", "libc.so.6")), None);
    }
}
