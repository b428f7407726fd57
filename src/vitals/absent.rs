//! Vital signs where they are not supported: the report says so.

use crate::analysis::VitalSigns;
use std::{path::Path, time::Duration};

#[derive(Debug)]
pub(super) struct Sources;

impl Sources {
    pub(super) fn open(_: &Path) -> Result<Self, String> {
        Err(match cfg!(feature = "vitals") {
            true => "vital signs are read on Linux only",
            false => "vital signs are not read: build kernspan with its feature `vitals`",
        }
        .to_owned())
    }

    pub(super) fn read(&mut self, _: Duration) -> VitalSigns {
        VitalSigns::default()
    }

    pub(super) fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    pub(super) fn energy(&self) -> Vec<crate::analysis::EnergyUse> {
        Vec::new()
    }
}
