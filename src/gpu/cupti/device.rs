//! The devices that the driver sees, with their attributes.

use crate::trace::{Device, DeviceId};
use cupti_sys::Driver;
use std::fmt::Write;

/// Returns the devices that the driver sees. Attributes that it does not know are 0.
pub(super) fn devices(driver: Driver) -> Vec<Device> {
    (0..driver.device_count()).filter_map(|ordinal| describe(driver, ordinal)).collect()
}

fn describe(driver: Driver, ordinal: u32) -> Option<Device> {
    let device = driver.device(ordinal).ok()?;
    // Numbers of `CUdevice_attribute`.
    let attribute =
        |number| driver.device_attribute(device, number).map_or(0, |value| u32::try_from(value).unwrap_or(0));
    let uuid = driver.device_uuid(device).map(|bytes| {
        bytes.iter().enumerate().fold("GPU-".to_owned(), |mut text, (index, byte)| {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            let _ = write!(text, "{dash}{byte:02x}");
            text
        })
    });
    Some(Device {
        id: DeviceId::new(ordinal),
        name: driver.device_name(device).unwrap_or_default(),
        uuid: uuid.unwrap_or_default(),
        memory: driver.device_memory(device).unwrap_or(0) as u64,
        compute_capability: (attribute(75), attribute(76)),
        multiprocessors: attribute(16),
        warp_size: attribute(10),
        threads_per_block: attribute(1),
        threads_per_multiprocessor: attribute(39),
        blocks_per_multiprocessor: attribute(106),
        registers_per_block: attribute(12),
        registers_per_multiprocessor: attribute(82),
        shared_memory_per_block: attribute(8),
        shared_memory_per_block_optin: attribute(97),
        shared_memory_per_multiprocessor: attribute(81),
        shared_memory_reserved: attribute(111),
        clock_khz: attribute(13),
        memory_clock_khz: attribute(36),
        memory_bus_bits: attribute(37),
    })
}
