//! The GPUs that `CUDA_VISIBLE_DEVICES` lets the process use.

/// The GPUs that the process may use, in the order in which CUDA counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VisibleGpus {
    All,
    Only(Vec<Pick>),
}

/// How one GPU is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    Index(usize),
    /// A prefix of the GPU's id.
    Id(String),
}

impl VisibleGpus {
    pub(super) fn new(variable: Option<&str>) -> Self {
        let Some(list) = variable else { return Self::All };
        let mut picks = Vec::new();
        for pick in list.split(',').map(str::trim).filter(|pick| !pick.starts_with("MIG-")) {
            match pick.parse() {
                Ok(index) => picks.push(Pick::Index(index)),
                Err(_) if pick.starts_with("GPU-") => picks.push(Pick::Id(pick.to_owned())),
                // CUDA ignores everything after an invalid entry, such as -1.
                Err(_) => break,
            }
        }
        Self::Only(picks)
    }

    /// Returns the places of the GPUs that the process may use among these ids, in CUDA's order if CUDA counts them as
    /// NVML does (`CUDA_DEVICE_ORDER=PCI_BUS_ID`, or all GPUs are alike).
    pub(super) fn of(&self, ids: &[impl AsRef<str>]) -> Vec<usize> {
        match self {
            Self::All => (0..ids.len()).collect(),
            Self::Only(picks) => {
                let place = |pick: &Pick| match pick {
                    Pick::Index(index) => Some(*index).filter(|index| *index < ids.len()),
                    Pick::Id(start) => ids.iter().position(|id| id.as_ref().starts_with(start.as_str())),
                };
                picks.iter().filter_map(place).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::VisibleGpus;

    #[test]
    fn only_what_the_process_may_use_is_read_in_its_order() {
        const IDS: [&str; 3] = ["GPU-aa11", "GPU-ab22", "GPU-cc33"];
        let cases: [(Option<&str>, &[usize]); 9] = [
            (None, &[0, 1, 2]),
            (Some(""), &[]),
            (Some("1"), &[1]),
            (Some(" 2, 0"), &[2, 0]),
            (Some("0,-1,1"), &[0]),
            (Some("GPU-ab"), &[1]),
            (Some("GPU-cc33,0"), &[2, 0]),
            (Some("MIG-1234,2,7"), &[2]),
            (Some("NoDevFiles"), &[]),
        ];
        for (variable, expected) in cases {
            assert_eq!(VisibleGpus::new(variable).of(&IDS), expected, "{variable:?}");
        }
    }
}
