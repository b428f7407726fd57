//! CRC-32C, the checksum of TensorBoard's records.

use crc::{CRC_32_ISCSI, Crc};

const CRC_32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Returns the CRC-32C of some bytes.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    CRC_32C.checksum(bytes)
}

/// Returns the CRC-32C of some bytes, masked as in records. The mask is there because the CRC of data that contains its
/// own CRC is weak.
pub(super) fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::{crc32c, masked_crc32c};

    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b""), 0);
        // The header of a record of 24 bytes, as TensorFlow writes it.
        assert_eq!(masked_crc32c(&24_u64.to_le_bytes()), 0x224b_7fa3);
    }
}
