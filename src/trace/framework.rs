//! The framework that a recorded program uses.

use super::{NameKey, Trace, Work};
use rustc_hash::FxHashSet;

/// The framework that a recorded program uses, as far as its trace shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Framework {
    /// PyTorch.
    PyTorch,
    /// Candle.
    Candle,
    /// Burn.
    Burn,
    /// Another one, or none.
    #[default]
    Other,
}

impl Trace {
    /// Determines the framework that the program uses: the one that wrote the file, or else the one that created a span
    /// or an event, or else the one whose kernel names appear.
    ///
    /// A span belongs to a framework by its target, such as `candle_transformers` or `kernspan_burn`. So Burn on
    /// Candle's kernels is Burn.
    pub fn framework(&self) -> Framework {
        if self.torch().is_some() {
            return Framework::PyTorch;
        }
        let by_callsite = self.callsites().iter().find_map(|it| of_callsite(it.name(), it.target()));
        // There may be many kernels, but there are few names.
        let mut names = FxHashSet::default();
        let kernels = self.work().filter_map(Work::kernel).filter(|kernel| names.insert(NameKey::of(&kernel.name)));
        by_callsite.or_else(|| { kernels }.find_map(|kernel| of_kernel(&kernel.raw_name))).unwrap_or_default()
    }
}

/// Returns the framework that a span belongs to.
fn of_callsite(name: &str, target: &str) -> Option<Framework> {
    let root = target.split("::").next().unwrap_or_default();
    let is_of = |crates: &[&str]| {
        crates.iter().any(|it| root.strip_prefix(it).is_some_and(|rest| rest.is_empty() || rest.starts_with('_')))
    };
    match root {
        "kernspan_candle" | "candle_core" | "candle_nn" | "candle_transformers" => Some(Framework::Candle),
        "kernspan_burn" => Some(Framework::Burn),
        _ if is_of(&["burn", "cubecl"]) => Some(Framework::Burn),
        // In a file converted from one written by PyTorch.
        _ if name.starts_with("aten::") => Some(Framework::PyTorch),
        _ => None,
    }
}

/// Returns the framework that a kernel belongs to.
fn of_kernel(name: &str) -> Option<Framework> {
    // Mangled: `at::native`.
    if name.contains("at::native") || name.contains("2at6native") {
        Some(Framework::PyTorch)
    } else if is_candle(name) {
        Some(Framework::Candle)
    } else if is_cubecl(name) {
        Some(Framework::Burn)
    } else {
        None
    }
}

/// Prefixes of the names of Candle's kernels, before the element type: those of `candle-kernels` 0.11 that are unlikely
/// to be used elsewhere.
const CANDLE: [&str; 33] = [
    "affine",
    "badd",
    "bdiv",
    "bmaximum",
    "bminimum",
    "bmul",
    "bsub",
    "const_set",
    "copy2d",
    "fast_argmax",
    "fast_argmin",
    "fast_max",
    "fast_min",
    "fast_sum",
    "fast_sum_small",
    "uabs",
    "ucopy",
    "ucos",
    "uelu",
    "uerf",
    "uexp",
    "ugelu",
    "ugelu_erf",
    "ulog",
    "uneg",
    "upowf",
    "urecip",
    "urelu",
    "usigmoid",
    "usilu",
    "usin",
    "usqr",
    "usqrt",
];

/// Whether a kernel belongs to Candle, such as `ugelu_erf_f32`.
fn is_candle(name: &str) -> bool {
    let types = ["f32", "bf16", "f16", "f64", "u8", "u32", "i64", "fp8_e4m3", "f8_e4m3"];
    let stem = types.iter().find_map(|it| name.strip_suffix(it)?.strip_suffix('_'));
    stem.is_some_and(|stem| CANDLE.contains(&stem))
}

/// Whether a kernel belongs to CubeCL, on which Burn runs: a lower-case name and a hash of eight hexadecimal digits,
/// such as `kernel_binop_c_f32_n_1_37b0d102`.
fn is_cubecl(name: &str) -> bool {
    let is_hash = |hash: &str| {
        let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
        // A word such as `feedface` is not a hash, nor is a date.
        hash.len() == 8
            && hash.bytes().all(is_digit)
            && hash.bytes().any(|byte| byte.is_ascii_digit())
            && hash.bytes().any(|byte| byte.is_ascii_lowercase())
    };
    let is_name =
        |name: &str| name.bytes().all(|byte| byte == b'_' || byte.is_ascii_digit() || byte.is_ascii_lowercase());
    name.rsplit_once('_').is_some_and(|(name, hash)| is_hash(hash) && is_name(name))
}

#[cfg(test)]
mod tests {
    use super::{Framework, of_callsite, of_kernel};
    use crate::trace::sample::{gpu_trace, kernel};

    #[test]
    fn kernels_have_names_of_their_framework() {
        for name in ["affine_f32", "badd_bf16", "ugelu_erf_f32", "fast_sum_f16", "ucopy_u8"] {
            assert_eq!(of_kernel(name), Some(Framework::Candle), "{name}");
        }
        for name in ["elemwise_fuse_876555db", "kernel_binop_c_f32_n_1_37b0d102"] {
            assert_eq!(of_kernel(name), Some(Framework::Burn), "{name}");
        }
        let torch = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15FillFunctor";
        assert_eq!(of_kernel(torch), Some(Framework::PyTorch));
        let others = [
            "layer_forward",
            "adam",
            "gemm",
            "add_f32",
            "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            "kernel_20261117",
            "at_feedface",
            "_37b0d102x",
            "",
        ];
        for name in others {
            assert_eq!(of_kernel(name), None, "{name}");
        }
    }

    #[test]
    fn spans_are_those_of_a_framework_by_their_target() {
        assert_eq!(of_callsite("attn", "candle_transformers::models::llama"), Some(Framework::Candle));
        assert_eq!(of_callsite("data", "kernspan_burn::data"), Some(Framework::Burn));
        assert_eq!(of_callsite("launch", "cubecl_runtime::client"), Some(Framework::Burn));
        assert_eq!(of_callsite("aten::mul", ""), Some(Framework::PyTorch));
        assert_eq!(of_callsite("forward", "burner::model"), None);
    }

    #[test]
    fn spans_count_before_kernels() {
        let mut trace = gpu_trace();
        assert_eq!(trace.framework(), Framework::Other);
        trace.work[0].detail = kernel("affine_f32");
        assert_eq!(trace.framework(), Framework::Candle);
        trace.callsites[1].target = "kernspan_burn::data".into();
        assert_eq!(trace.framework(), Framework::Burn);
        trace.torch = Some(Box::default());
        assert_eq!(trace.framework(), Framework::PyTorch);
    }

    #[cfg(all(feature = "cuda", target_os = "linux"))]
    #[test]
    fn recorded_programs_use_the_framework_that_they_use() {
        let framework = |name: &str| {
            let path = format!("{}/tests/fixtures/{name}.kernspan", env!("CARGO_MANIFEST_DIR"));
            crate::replay(std::fs::File::open(path).unwrap()).unwrap().framework()
        };
        assert_eq!(framework("gpu/candle"), Framework::Candle);
        assert_eq!((framework("gpu/burn"), framework("gpu/burn-first")), (Framework::Burn, Framework::Burn));
        assert_eq!((framework("gpu/training"), framework("gpu/calls")), (Framework::Other, Framework::Other));
        for fault in ["input", "scalar-read", "f32-matmul", "launch-bound"] {
            assert_eq!(framework(&format!("faults/{fault}-faulty")), Framework::Other, "{fault}");
        }
    }
}
