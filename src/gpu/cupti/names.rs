//! Names of kernels and functions, each made once.

use crate::quick::QuickMap;
use cupti_sys::Cupti;
use std::{
    ffi::{CStr, c_char},
    sync::Arc,
};

/// The names of kernels, by the addresses at which the library keeps them.
#[derive(Debug, Default)]
pub(super) struct LiveNames(QuickMap<usize, (Arc<str>, Arc<str>)>);

impl LiveNames {
    /// The name of a kernel whose record has just come, for people and raw.
    pub(super) fn kernel(&mut self, address: usize) -> (Arc<str>, Arc<str>) {
        let pointer = std::ptr::with_exposed_provenance::<c_char>(address);
        if pointer.is_null() {
            return (Arc::from("unknown"), Arc::from("unknown"));
        }
        // SAFETY: CUPTI keeps names as long as it is attached and the module is loaded; the record has just come.
        let raw = unsafe { CStr::from_ptr(pointer) }.to_bytes();
        match self.0.get(&address) {
            // Where a module is unloaded, another name may come to lie there.
            Some((name, known)) if known.as_bytes() == raw => (Arc::clone(name), Arc::clone(known)),
            _ => {
                let raw = String::from_utf8_lossy(raw);
                let names = (Arc::from(demangle(&raw)), Arc::from(&*raw));
                self.0.insert(address, names.clone());
                names
            }
        }
    }
}

/// The name of a function, for people.
pub(super) fn function(cupti: &Cupti, domain: u32, cbid: u32) -> Arc<str> {
    let name = cupti.callback_name(domain, cbid).unwrap_or_default();
    if name.is_empty() { Arc::from(format!("function {cbid}")) } else { Arc::from(without_version(&name)) }
}

/// A C++ name for people; any other as it is.
pub(crate) fn demangle(raw: &str) -> String {
    if !raw.starts_with("_Z") {
        return raw.to_owned();
    }
    // Names of templates can be far longer than anybody reads.
    let limit = cpp_demangle::DemangleOptions::new().recursion_limit(256);
    let symbol = cpp_demangle::Symbol::new(raw).ok();
    symbol.and_then(|symbol| symbol.demangle_with_options(&limit).ok()).unwrap_or_else(|| raw.to_owned())
}

/// `cuMemAlloc_v2`, `cuLaunchKernel_ptsz` and `cudaLaunchKernel_v7000` are `cuMemAlloc`, `cuLaunchKernel` and
/// `cudaLaunchKernel` to people.
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
    fn people_read_demangled_names() {
        assert_eq!(demangle("saxpy"), "saxpy");
        assert_eq!(demangle("_Z5saxpyfPKfPf"), "saxpy(float, float const*, float*)");
        assert_eq!(demangle("_Znonsense"), "_Znonsense");
    }

    #[test]
    fn functions_are_named_without_their_version() {
        let names = ["cuMemAlloc_v2", "cuLaunchKernel_ptsz", "cudaLaunchKernel_v7000", "cuCtxSynchronize", "a_value"];
        let short = names.map(without_version);
        assert_eq!(short, ["cuMemAlloc", "cuLaunchKernel", "cudaLaunchKernel", "cuCtxSynchronize", "a_value"]);
        assert_eq!(without_version("cuMemcpyHtoD_v2_ptds"), "cuMemcpyHtoD");
    }
}
