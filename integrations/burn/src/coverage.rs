use std::fmt;

/// The activity of a device that can be recorded in addition to spans; displayed as a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Coverage {
    /// Operations with shapes and FLOPs, which Burn reports on devices with fusion.
    pub operations: bool,
    /// Kernels, copies and memory, which CUPTI reports on CUDA devices.
    pub kernels: bool,
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.operations, self.kernels) {
            (true, true) => "spans, operations and GPU activity are recorded",
            (true, false) => "spans and operations are recorded; GPU activity is only seen on CUDA devices",
            (false, true) => {
                "spans and GPU activity are recorded; operations are only seen with Burn's feature `fusion`"
            }
            (false, false) => {
                "spans are recorded; operations are only seen on devices with fusion, GPU activity on CUDA devices"
            }
        })
    }
}
