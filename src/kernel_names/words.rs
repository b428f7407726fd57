//! Names of kernels whose meaning is in the words between underscores, as those of cuBLAS, cuDNN and CUTLASS that are
//! generated from the parameters of a matrix product, and those of CubeCL.

/// The words of a name, by what they mean.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Words {
    /// What the kernel does, and with which type: `xmma_gemm_f32`.
    pub(super) base: String,
    /// The size of a block's tile: `256×128×8`.
    pub(super) tile: Option<String>,
    /// The other words, which tell it from its siblings.
    pub(super) rest: Vec<String>,
}

impl Words {
    /// Parses a name; `None` if it says neither an architecture nor the hash of its parameters.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let words: Vec<&str> = name.split('_').filter(|word| !word.is_empty()).collect();
        let (_, after) = words.split_first()?;
        let is_generated = words[0] == "cutlass" || words.iter().any(|word| is_architecture(word));
        match after.last() {
            _ if name.starts_with("_Z") => Self::of_mangled(name),
            _ if is_generated => Some(Self::of_product(&words)),
            Some(hash) if is_hash(hash) => Some(Self::of_cube(&words)),
            _ => None,
        }
    }

    /// Parses a name such as `sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_ffma_…__5x_cublas` or
    /// `cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_align4`.
    fn of_product(words: &[&str]) -> Self {
        let (mut parsed, mut base) = (Self::default(), Vec::new());
        let mut types: Vec<&str> = Vec::new();
        let (mut has_depth, mut mode) = (false, None::<Vec<&str>>);
        for (index, word) in words.iter().enumerate() {
            let sizes = word.trim_start_matches("tilesize");
            match (parsed.tile.as_mut(), is_sizes(sizes)) {
                (None, true) => {
                    parsed.tile = Some(sizes.replace('x', "×"));
                    has_depth = sizes.matches('x').count() > 1;
                    continue;
                }
                // The tile's depth, and the number of stages: `128x64_16x6`.
                (Some(tile), true) if !has_depth && is_sizes(words[index - 1]) => {
                    let (depth, stages) = sizes.split_once('x').unwrap_or((sizes, ""));
                    *tile += &format!("×{depth}");
                    has_depth = true;
                    parsed.rest.push(format!("stage{stages}"));
                    continue;
                }
                _ => {}
            }
            match word {
                _ if is_architecture(word) => parsed.rest.push((*word).to_owned()),
                _ if words[0] == "cutlass" && index == 1 && word.bytes().all(|byte| byte.is_ascii_digit()) => {
                    parsed.rest.push(format!("sm{word}"));
                }
                _ if !type_of(word).is_empty() => types.push(word),
                &"execute" => mode = Some(Vec::new()),
                &"kernel" => parsed.rest.extend(mode.take().filter(|mode| !mode.is_empty()).map(|mode| mode.join("_"))),
                &"aligned" | &"tensorop" | &"5x" => {}
                // Between `execute` and `kernel` is one thing: `segment_k_on`.
                _ if mode.is_some() => mode.iter_mut().for_each(|mode| mode.push(word)),
                // The words behind the types and the tile are how it does it.
                _ if types.is_empty() && parsed.tile.is_none() || word.contains("gemm") => base.push(*word),
                _ => parsed.rest.push((*word).to_owned()),
            }
        }
        // Those of the inputs, of the sums, and of the output. The sums say how exact it is.
        let of_sums = types.get(1).or(types.first()).map(|word| type_of(word));
        base.extend(of_sums);
        parsed.base = base.join("_");
        // What it was compiled for says least.
        parsed.rest.sort_by_key(|word| is_architecture(word));
        if types.len() > 1 {
            parsed.rest.push(types.join("_"));
        }
        parsed
    }

    /// Parses a mangled name, as drivers leave those that are too long for them: the first identifier that means more
    /// than that it is a kernel, the first three numbers in a row, and all identifiers with their numbers.
    fn of_mangled(name: &str) -> Option<Self> {
        let mut identifiers: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut rest = name;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            let is_value = rest[..at].ends_with("Li") || rest[..at].ends_with("Lj");
            rest = &rest[at..];
            let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
            rest = after;
            // `S1_` and `E2` are numbers as well, whose length fits no identifier.
            let text = number.parse().ok().and_then(|length: usize| after.get(..length));
            match text.filter(|text| text.starts_with(|c: char| c.is_alphabetic() || c == '_')) {
                _ if is_value => {
                    identifiers.iter_mut().next_back().into_iter().for_each(|(_, values)| values.push(number));
                }
                Some(text) if text.len() > 1 => {
                    identifiers.push((text, Vec::new()));
                    rest = &after[text.len()..];
                }
                _ => {}
            }
        }
        let starts = name.match_indices('I').count();
        let is_base = |text: &&str| starts == 0 || name.contains(&format!("{text}I"));
        let mut bases = identifiers.iter().map(|(text, _)| *text).filter(is_base);
        let base =
            bases.find(|text| !text.trim_end_matches(|c: char| c.is_ascii_digit()).eq_ignore_ascii_case("kernel"))?;
        let tile = identifiers.iter().find(|(_, values)| values.len() > 1).map(|(_, values)| values.join("×"));
        let text = |(text, values): &(&str, Vec<&str>)| match values.is_empty() {
            true => (*text).to_owned(),
            false => format!("{text}<{}>", values.join(", ")),
        };
        Some(Self { base: base.to_owned(), tile, rest: identifiers.iter().map(text).collect() })
    }

    /// Parses a name of CubeCL such as `kernel_scalar_binop_c_f32_n_4_2eee4f84`: what it does, then each parameter's
    /// name and value, and the hash of all.
    fn of_cube(words: &[&str]) -> Self {
        let (before, hash) = words.split_at(words.len() - 1);
        let first = before.iter().position(|word| !type_of(word).is_empty()).filter(|&at| at > 1);
        let (base, parameters) = before.split_at(first.map_or(before.len(), |at| at - 1));
        let mut base = base.to_vec();
        for word in parameters.iter().filter(|word| !type_of(word).is_empty()) {
            if !base.contains(word) {
                base.push(word);
            }
        }
        let rest = hash.iter().map(|hash| (*hash).to_owned()).chain([parameters.join("_")]).collect();
        Self { base: base.join("_"), tile: None, rest }
    }
}

/// Returns whether the word is an architecture, such as `sm80` or `ampere`.
fn is_architecture(word: &str) -> bool {
    const NAMES: [&str; 7] = ["maxwell", "pascal", "volta", "turing", "ampere", "hopper", "blackwell"];
    NAMES.contains(&word)
        || word
            .strip_prefix("sm")
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns whether the word has sizes only, such as `128x64`.
fn is_sizes(word: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    word.contains('x') && word.split('x').all(is_number)
}

/// Returns whether the word is a hash: eight hexadecimal digits, of which some are decimal.
fn is_hash(word: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    word.len() == 8 && word.bytes().all(is_hex) && word.bytes().any(|byte| byte.is_ascii_digit())
}

/// Returns the first type of a word that is one or two types of numbers, as `f32` and `tf32f32` are; empty of others.
fn type_of(word: &str) -> &str {
    const TYPES: [&str; 17] = [
        "bf16", "tf32", "fp16", "f16", "f32", "f64", "e4m3", "e5m2", "f8", "s8", "u8", "i8", "i32", "s32", "u32",
        "i64", "u64",
    ];
    let first = TYPES.iter().find(|of_numbers| word.starts_with(**of_numbers));
    let Some(first) = first else { return "" };
    let rest = &word[first.len()..];
    if rest.is_empty() || TYPES.contains(&rest) { &word[..first.len()] } else { "" }
}

#[cfg(test)]
mod tests {
    use super::Words;

    #[test]
    fn the_words_of_a_product_are_its_type_and_its_tile() {
        for (name, base, tile, rest) in [
            (
                "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize256x128x32_warpgroupsize2x1x1_execute_\
                 segment_k_on_kernel__5x_cublas",
                "xmma_gemm_tf32",
                Some("256×128×32"),
                "nt n warpgroupsize2x1x1 segment_k_on cublas sm90 f32f32_tf32f32_f32",
            ),
            (
                "cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_align4",
                "cutlass_s1688gemm",
                Some("128×64×16"),
                "stage6 nn align4 sm80",
            ),
            ("fmha_cutlassB_f32_aligned_64x64_k64_sm80", "fmha_cutlassB_f32", Some("64×64"), "k64 sm80"),
            ("kernel_scalar_binop_c_f32_n_4_2eee4f84", "kernel_scalar_binop_f32", None, "2eee4f84 c_f32_n_4"),
            (
                "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
                "s16816gemm_bf16",
                Some("128×128"),
                "ldg8 f2f stages 32x5 tn ampere bf16_bf16",
            ),
            ("elemwise_fuse_09f91eca", "elemwise_fuse", None, "09f91eca"),
        ] {
            let words = Words::parse(name).unwrap();
            assert_eq!((words.base.as_str(), words.tile.as_deref()), (base, tile), "{name}");
            assert_eq!(words.rest.join(" ").trim_end(), rest, "{name}");
        }
        for name in ["", "_", "affine_f32", "fft2d_r2c_32x32", "triton_poi_fused_add_mul_0", "a_deadbeef", "sm80"] {
            assert!(Words::parse(name).is_none_or(|words| words.base.is_empty()), "{name}");
        }
    }
}
