//! A kernel that the driver compiles from PTX.

use crate::{
    Failure,
    device::{Device, declaration, function, load, load_function},
    training::Compile,
};
use cudarc::{driver::sys, nvrtc::compile_ptx};
use std::{ffi::CString, time::SystemTime};
use tracing::info_span;

/// A kernel that is compiled once, or in each step from another source.
#[derive(Debug)]
pub(crate) struct CustomKernel {
    /// Sources that are not compiled yet.
    sources: std::vec::IntoIter<CString>,
    /// The kernel that is compiled once.
    compiled: Option<sys::CUfunction>,
}

/// The number in the source that is another in each.
const SEED: &str = "305419896";
const NAME: &str = "custom";

impl CustomKernel {
    /// Makes as many sources as needed, since a step is to spend its time on loading them only.
    pub(crate) fn new(compile: Compile, steps: u64) -> Result<Self, Failure> {
        let body = format!(
            "(float* out, int iterations) {{
                unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
                float x = i ^ {SEED}u;
                #pragma unroll 32
                for (int n = 0; n < iterations; n++) x = fmaf(x, 0.999f, 0.001f);
                out[i] = x;
            }}"
        );
        let ptx = compile_ptx(declaration(NAME) + &body)?.to_src();
        if ptx.matches(SEED).count() != 1 {
            return Err("the PTX of the custom kernel does not have its number once".into());
        }
        let count = if compile == Compile::EachStep { steps } else { 1 };
        // The driver keeps compiled kernels on disk, so the numbers have to be others than those of an earlier run.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_micros() as u64;
        let source = |step: u64| CString::new(ptx.replace(SEED, &((now + step) & 0x7fff_ffff).to_string()));
        let sources: Vec<_> = (0..count).map(source).collect::<Result<_, _>>()?;
        let mut kernel = Self { sources: sources.into_iter(), compiled: None };
        if compile == Compile::Once {
            kernel.compiled = Some(kernel.compile()?);
        }
        Ok(kernel)
    }

    /// Launches the kernel, and compiles it before if each step has its own.
    pub(crate) fn run(&mut self, device: &Device, blocks: u32, iterations: u32) -> Result<(), Failure> {
        let _span = info_span!("custom").entered();
        let function = match self.compiled {
            Some(function) => function,
            None => info_span!("compile").in_scope(|| self.compile())?,
        };
        Ok(device.launch_function(function, blocks, iterations, device.activations)?)
    }

    /// Compiles the next source. The module stays loaded, as in the cache of a program that never finds what it looks
    /// for; to unload it would be a second fault, a wait for the kernel.
    fn compile(&mut self) -> Result<sys::CUfunction, Failure> {
        let source = self.sources.next().ok_or("no source is left to compile")?;
        let function = function(load(&source)?, NAME)?;
        load_function(function)?;
        Ok(function)
    }
}
