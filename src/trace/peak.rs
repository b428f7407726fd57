//! The peak throughput of devices, from their data sheets.

use super::Device;

/// The element types of the columns of [`PEAKS`], each with the names that spans may use for it.
const DTYPES: [&[&str]; 7] = [
    &["f64", "float64"],
    &["f32", "float32"],
    &["tf32"],
    &["f16", "float16"],
    &["bf16", "bfloat16"],
    &["f8", "fp8", "f8e4m3", "f8e4m3fn", "f8e5m2"],
    &["i8", "int8"],
];

/// Device names, as the driver gives them but without the vendor, and their peaks in 10¹² operations per second; 0 if
/// there is no figure.
///
/// Only whole names match: a slice of a card (`… MIG 1g.5gb`), a laptop chip or a `SUPER` has other peaks.
const PEAKS: [(&[&str], [f64; 7]); 27] = [
    (&["GB200"], [40.0, 80.0, 1250.0, 2500.0, 2500.0, 5000.0, 5000.0]),
    (&["B200"], [37.0, 75.0, 1100.0, 2250.0, 2250.0, 4500.0, 4500.0]),
    (&["H200"], [67.0, 67.0, 494.5, 989.5, 989.5, 1979.0, 1979.0]),
    (&["H200 NVL"], [60.0, 60.0, 417.5, 835.5, 835.5, 1670.5, 1670.5]),
    (&["GH200 120GB", "GH200 480GB", "GH200 144G HBM3e"], [67.0, 67.0, 494.5, 989.5, 989.5, 1979.0, 1979.0]),
    (&["H100 80GB HBM3"], [67.0, 67.0, 494.5, 989.5, 989.5, 1979.0, 1979.0]),
    (&["H100 PCIe"], [51.0, 51.0, 378.0, 756.5, 756.5, 1513.0, 1513.0]),
    (&["H100 NVL"], [60.0, 60.0, 417.5, 835.5, 835.5, 1670.5, 1670.5]),
    (&["H20"], [0.0, 0.0, 74.0, 148.0, 148.0, 296.0, 296.0]),
    (
        &["A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIE-40GB", "A100 80GB PCIe"],
        [19.5, 19.5, 156.0, 312.0, 312.0, 0.0, 624.0],
    ),
    (&["A30"], [10.3, 10.3, 82.0, 165.0, 165.0, 0.0, 330.0]),
    (&["A10"], [0.0, 31.2, 62.5, 125.0, 125.0, 0.0, 250.0]),
    (&["A40"], [0.0, 37.4, 74.8, 149.7, 149.7, 0.0, 299.3]),
    (&["RTX A6000"], [0.0, 38.7, 77.4, 154.8, 154.8, 0.0, 309.7]),
    (&["L4"], [0.0, 30.3, 60.0, 121.0, 121.0, 242.5, 242.5]),
    (&["L40"], [0.0, 90.5, 90.5, 181.05, 181.05, 362.0, 362.0]),
    (&["L40S"], [0.0, 91.6, 183.0, 362.05, 362.05, 733.0, 733.0]),
    (&["RTX 6000 Ada Generation"], [0.0, 91.1, 182.1, 364.2, 364.2, 728.5, 728.5]),
    (&["V100-SXM2-16GB", "V100-SXM2-32GB"], [7.8, 15.7, 0.0, 125.0, 0.0, 0.0, 0.0]),
    (&["V100-PCIE-16GB", "V100-PCIE-32GB"], [7.0, 14.0, 0.0, 112.0, 0.0, 0.0, 0.0]),
    (&["V100S-PCIE-32GB"], [8.2, 16.4, 0.0, 130.0, 0.0, 0.0, 0.0]),
    (&["T4"], [0.0, 8.1, 0.0, 65.0, 0.0, 0.0, 130.0]),
    (&["GeForce RTX 5090"], [0.0, 104.8, 104.8, 209.5, 209.5, 419.0, 838.0]),
    (&["GeForce RTX 4090"], [0.0, 82.6, 82.6, 165.2, 165.2, 330.3, 660.6]),
    (&["GeForce RTX 4080"], [0.0, 48.7, 48.7, 97.5, 97.5, 194.9, 389.9]),
    (&["GeForce RTX 3090"], [0.0, 35.6, 35.6, 71.0, 71.0, 0.0, 284.0]),
    (&["GeForce RTX 3080"], [0.0, 29.8, 29.8, 59.5, 59.5, 0.0, 238.0]),
];

impl Device {
    /// The peak throughput of the device for an element type such as `f32` or `BF16`, in operations per second; `None`
    /// if the device or the type is unknown.
    ///
    /// The table gives the figures in 10¹² operations per second, at boost clock and without sparsity. They come from
    /// NVIDIA's data sheets, of which copies were compared; the figures of the NVL cards and of the H20 are the least
    /// certain. Where a data sheet gives only a figure with sparsity, it is halved.
    ///
    /// The figures are for tensor cores, with sums in `f32` for `f16`, `bf16` and `f8`, where a device has them for the
    /// type. For `f32` they are without tensor cores: if a library uses tensor cores for `f32`, the type is `tf32`.
    ///
    /// | device | f64 | f32 | tf32 | f16 | bf16 | f8 | i8 |
    /// |---|---|---|---|---|---|---|---|
    /// | GB200 | 40 | 80 | 1250 | 2500 | 2500 | 5000 | 5000 |
    /// | B200 | 37 | 75 | 1100 | 2250 | 2250 | 4500 | 4500 |
    /// | H200 | 67 | 67 | 494.5 | 989.5 | 989.5 | 1979 | 1979 |
    /// | H200 NVL | 60 | 60 | 417.5 | 835.5 | 835.5 | 1670.5 | 1670.5 |
    /// | GH200 120GB, GH200 480GB, GH200 144G HBM3e | 67 | 67 | 494.5 | 989.5 | 989.5 | 1979 | 1979 |
    /// | H100 80GB HBM3 | 67 | 67 | 494.5 | 989.5 | 989.5 | 1979 | 1979 |
    /// | H100 PCIe | 51 | 51 | 378 | 756.5 | 756.5 | 1513 | 1513 |
    /// | H100 NVL | 60 | 60 | 417.5 | 835.5 | 835.5 | 1670.5 | 1670.5 |
    /// | H20 | – | – | 74 | 148 | 148 | 296 | 296 |
    /// | A100-SXM4-40GB, A100-SXM4-80GB, A100-PCIE-40GB, A100 80GB PCIe | 19.5 | 19.5 | 156 | 312 | 312 | – | 624 |
    /// | A30 | 10.3 | 10.3 | 82 | 165 | 165 | – | 330 |
    /// | A10 | – | 31.2 | 62.5 | 125 | 125 | – | 250 |
    /// | A40 | – | 37.4 | 74.8 | 149.7 | 149.7 | – | 299.3 |
    /// | RTX A6000 | – | 38.7 | 77.4 | 154.8 | 154.8 | – | 309.7 |
    /// | L4 | – | 30.3 | 60 | 121 | 121 | 242.5 | 242.5 |
    /// | L40 | – | 90.5 | 90.5 | 181.05 | 181.05 | 362 | 362 |
    /// | L40S | – | 91.6 | 183 | 362.05 | 362.05 | 733 | 733 |
    /// | RTX 6000 Ada Generation | – | 91.1 | 182.1 | 364.2 | 364.2 | 728.5 | 728.5 |
    /// | V100-SXM2-16GB, V100-SXM2-32GB | 7.8 | 15.7 | – | 125 | – | – | – |
    /// | V100-PCIE-16GB, V100-PCIE-32GB | 7 | 14 | – | 112 | – | – | – |
    /// | V100S-PCIE-32GB | 8.2 | 16.4 | – | 130 | – | – | – |
    /// | T4 | – | 8.1 | – | 65 | – | – | 130 |
    /// | GeForce RTX 5090 | – | 104.8 | 104.8 | 209.5 | 209.5 | 419 | 838 |
    /// | GeForce RTX 4090 | – | 82.6 | 82.6 | 165.2 | 165.2 | 330.3 | 660.6 |
    /// | GeForce RTX 4080 | – | 48.7 | 48.7 | 97.5 | 97.5 | 194.9 | 389.9 |
    /// | GeForce RTX 3090 | – | 35.6 | 35.6 | 71 | 71 | – | 284 |
    /// | GeForce RTX 3080 | – | 29.8 | 29.8 | 59.5 | 59.5 | – | 238 |
    ///
    /// Names must match as a whole, after `NVIDIA` and `Tesla` are removed, since a slice of a card or a card with a
    /// similar name is a different device. There is no public data sheet for the H20: its figures are as reported. The
    /// RTX 3080 is the 10 GB card; the 12 GB card has the same name and does 3 % more.
    pub fn peak_flops(&self, dtype: &str) -> Option<f64> {
        let is_one_of = |names: &[&str], name: &str| names.iter().any(|other| other.eq_ignore_ascii_case(name));
        let model = self.name.strip_prefix("NVIDIA ").unwrap_or(&self.name);
        let model = model.strip_prefix("Tesla ").unwrap_or(model);
        let column = DTYPES.iter().position(|names| is_one_of(names, dtype))?;
        let (_, peaks) = PEAKS.iter().find(|(names, _)| is_one_of(names, model))?;
        (peaks[column] > 0.0).then(|| peaks[column] * 1e12)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Device, DTYPES, PEAKS};

    /// Returns the peak of a device, in 10¹² operations a second.
    fn peak(name: &str, dtype: &str) -> Option<f64> {
        Device { name: name.to_owned(), ..Device::default() }.peak_flops(dtype).map(|peak| peak / 1e12)
    }

    #[test]
    fn devices_are_known_by_the_drivers_names() {
        assert_eq!(peak("NVIDIA H200", "f32"), Some(67.0));
        assert_eq!(peak("NVIDIA H100 80GB HBM3", "bf16"), Some(989.5));
        assert_eq!(peak("NVIDIA H100 PCIe", "f16"), Some(756.5));
        assert_eq!(peak("NVIDIA A100-SXM4-80GB", "tf32"), Some(156.0));
        assert_eq!(peak("A100-SXM4-40GB", "f64"), Some(19.5));
        assert_eq!(peak("Tesla T4", "i8"), Some(130.0));
        assert_eq!(peak("Tesla V100-SXM2-16GB", "f16"), Some(125.0));
        assert_eq!(peak("NVIDIA GeForce RTX 4090", "f8e4m3"), Some(330.3));
        assert_eq!((peak("NVIDIA L40", "f32"), peak("NVIDIA L40S", "f32")), (Some(90.5), Some(91.6)));
        assert_eq!((peak("NVIDIA H20", "bf16"), peak("NVIDIA L4", "bf16")), (Some(148.0), Some(121.0)));
    }

    #[test]
    fn devices_of_similar_names_are_not_known() {
        let similar = [
            "",
            "NVIDIA ",
            "NVIDIA A10G",
            "NVIDIA H100",
            "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
            "NVIDIA GeForce RTX 4090 Laptop GPU",
            "NVIDIA GeForce RTX 4080 SUPER",
        ];
        for name in similar {
            assert_eq!(peak(name, "f32"), None, "{name}");
        }
    }

    #[test]
    fn types_are_known_in_either_case() {
        let h200 = |dtype| peak("NVIDIA H200", dtype);
        assert_eq!([h200("F32"), h200("BF16"), h200("f8E5M2")], [Some(67.0), Some(989.5), Some(1979.0)]);
        assert_eq!([h200("u32"), h200("f8e8m0"), h200("")], [None; 3]);
        assert_eq!(peak("Tesla V100-SXM2-16GB", "bf16"), None, "it has none");
    }

    #[test]
    fn the_documented_table_is_the_one_that_is_used() {
        let source = include_str!("peak.rs").lines();
        let mut rows = source.filter_map(|line| line.trim().strip_prefix("/// | ")?.strip_suffix(" |"));
        let types: Vec<_> = DTYPES.iter().map(|names| names[0]).collect();
        assert_eq!(rows.next(), Some(format!("device | {}", types.join(" | ")).as_str()));
        for (names, peaks) in PEAKS {
            let peaks = peaks.map(|peak| if peak > 0.0 { peak.to_string() } else { "–".to_owned() });
            assert_eq!(rows.next(), Some(format!("{} | {}", names.join(", "), peaks.join(" | ")).as_str()));
        }
        assert_eq!(rows.next(), None);
    }
}
