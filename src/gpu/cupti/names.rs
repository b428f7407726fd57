//! Names of kernels and of API functions, demangled once and cached.

use cupti_sys::Cupti;
use rustc_hash::FxHashMap;
use std::{
    ffi::{CStr, c_char},
    fmt,
    sync::Arc,
};

/// A cache of kernel names, by the addresses at which CUPTI keeps them.
#[derive(Debug, Default)]
pub(super) struct LiveNames(FxHashMap<usize, (Arc<str>, Arc<str>)>);

impl LiveNames {
    /// Returns the demangled and the raw name of a kernel whose record has just arrived.
    pub(super) fn kernel(&mut self, address: usize) -> (Arc<str>, Arc<str>) {
        let pointer = std::ptr::with_exposed_provenance::<c_char>(address);
        if pointer.is_null() {
            return (Arc::from("unknown"), Arc::from("unknown"));
        }
        // SAFETY: CUPTI keeps names as long as it is attached and the module is loaded; the record has just arrived.
        let raw = unsafe { CStr::from_ptr(pointer) }.to_bytes();
        match self.0.get(&address) {
            // After a module is unloaded, another name may be at the same address.
            Some((name, cached)) if cached.as_bytes() == raw => (Arc::clone(name), Arc::clone(cached)),
            _ => {
                let raw = String::from_utf8_lossy(raw);
                let names = (Arc::from(demangle(&raw)), Arc::from(&*raw));
                self.0.insert(address, names.clone());
                names
            }
        }
    }
}

/// Returns the name of an API function, without its version.
pub(super) fn function(cupti: &Cupti, domain: u32, cbid: u32) -> Arc<str> {
    let name = cupti.callback_name(domain, cbid).unwrap_or_default();
    if name.is_empty() { Arc::from(format!("function {cbid}")) } else { Arc::from(without_version(&name)) }
}

/// Demangles a C++ name; returns any other name unchanged.
pub(crate) fn demangle(raw: &str) -> String {
    let mut name = Bounded(String::new());
    let demangled = raw.starts_with("_Z").then(|| {
        let limit = cpp_demangle::DemangleOptions::new().recursion_limit(256);
        cpp_demangle::Symbol::new(raw).ok()?.structured_demangle(&mut name, &limit).ok()
    });
    if demangled.flatten().is_some() { name.0 } else { raw.to_owned() }
}

/// A text of bounded length. A raw name contains each template type once, the demangled one at each use: 300 bytes may
/// become gigabytes.
struct Bounded(String);

impl Bounded {
    const MAX_BYTES: usize = 1 << 15;
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > Self::MAX_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Strips versions: `cuMemAlloc_v2`, `cuLaunchKernel_ptsz` and `cudaLaunchKernel_v7000` become `cuMemAlloc`,
/// `cuLaunchKernel` and `cudaLaunchKernel`.
fn without_version(name: &str) -> &str {
    let name = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((short, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => short,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::{demangle, without_version};

    #[test]
    fn cpp_names_are_demangled() {
        assert_eq!(demangle("saxpy"), "saxpy");
        assert_eq!(demangle("_Z5saxpyfPKfPf"), "saxpy(float, float const*, float*)");
        assert_eq!(demangle("_Znonsense"), "_Znonsense");
    }

    #[test]
    fn names_that_would_be_huge_are_left_as_they_are() {
        // Each argument of `f` is a pair of the one before it.
        let number = |index: usize| char::from(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index]);
        let pairs =
            |count: usize| (2..count + 2).map(|last| format!("S1_IS{0}_S{0}_E", number(last))).collect::<String>();
        let raw = |count| format!("_Z1fI1P1QIS0_S0_E{}Evv", pairs(count));
        assert_eq!(demangle(&raw(1)), "void f<P, Q<P, P>, Q<Q<P, P>, Q<P, P> > >()");
        assert!(demangle(&raw(6)).len() > 1000);
        assert_eq!(demangle(&raw(30)), raw(30));
    }

    #[test]
    fn functions_are_named_without_their_version() {
        let names = ["cuMemAlloc_v2", "cuLaunchKernel_ptsz", "cudaLaunchKernel_v7000", "cuCtxSynchronize", "a_value"];
        let short = names.map(without_version);
        assert_eq!(short, ["cuMemAlloc", "cuLaunchKernel", "cudaLaunchKernel", "cuCtxSynchronize", "a_value"]);
        assert_eq!(without_version("cuMemcpyHtoD_v2_ptds"), "cuMemcpyHtoD");
    }
}
