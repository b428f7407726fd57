//! Tests of short names of kernels.

use super::{numbered, short_kernels, tight_kernels};
use proptest::prelude::*;
use std::{collections::HashMap, fmt::Write, fs, path::Path};
use unicode_width::UnicodeWidthStr;

/// Compares the forms with those of a golden file, or writes them there if `KERNSPAN_BLESS` is set.
#[test]
fn names_of_frameworks_and_libraries_have_golden_forms() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/kernel_names.txt");
    let golden = fs::read_to_string(&path).unwrap();
    let mut text = String::new();
    for table in golden.split_inclusive('\n').collect::<Vec<_>>().chunk_by(|_, line| !line.starts_with('#')) {
        let names: Vec<&str> = table[1..].iter().map(|line| line.trim_end().split_once('\t').unwrap().1).collect();
        text += table[0];
        short_kernels(&names).iter().zip(&names).for_each(|(short, full)| writeln!(text, "{short}\t{full}").unwrap());
    }
    if std::env::var_os("KERNSPAN_BLESS").is_some() {
        fs::write(&path, &text).unwrap();
        return;
    }
    assert!(text == golden, "the names have changed: KERNSPAN_BLESS=1 writes them, git shows the difference");
}

#[test]
fn names_that_are_alike_show_the_parts_in_which_they_differ() {
    let copy = |of: &str, lambda: &str| {
        format!("void at::{of}<4, at::copy_kernel_cuda(at::It&)::{{lambda()#{lambda}}}>(int, at::It&)")
    };
    let vectorized = "vectorized_elementwise_kernel";
    for (names, expected) in [
        (vec![copy(vectorized, "1")], vec!["elementwise_kernel<copy>"]),
        (
            vec![copy(vectorized, "1"), copy("elementwise_kernel", "1"), copy("elementwise_kernel", "1")],
            vec!["elementwise_kernel<copy> vectorized", "elementwise_kernel<copy>", "elementwise_kernel<copy>"],
        ),
        (
            vec![copy(vectorized, "1"), copy(vectorized, "2")],
            vec!["elementwise_kernel<copy> #1", "elementwise_kernel<copy> #2"],
        ),
        // Nothing but the parameters differs.
        (vec!["add<float>(int)".to_owned(), "add<float>(char)".to_owned()], vec!["add<float>", "add<float> #2"]),
    ] {
        assert_eq!(short_kernels(&names), expected);
    }
}

#[test]
fn names_that_are_too_wide_lose_words_that_say_little() {
    let name = "void at::layer_norm_cuda_kernel<float>(float*)";
    assert_eq!(tight_kernels(&[name], 40), ["layer_norm_cuda_kernel<float>"]);
    assert_eq!(tight_kernels(&[name], 24), ["layer_norm<float>"]);
    assert_eq!(numbered(&["a", "b", "a"], vec!["gemm".to_owned(); 3], 6), ["gemm", "gem #2", "gemm"]);
}

/// Names made of the pieces of which names of kernels are made, in any order.
fn any_name() -> impl Strategy<Value = String> {
    let pieces = "void |at::|<|>|\\(|\\)|,|\\{lambda\\(\\)#1\\}|::|operator\\(\\)|float|4ul|_|sm80_|gemm|\
                  tilesize1x2x3|_Z3|Kernel2|é";
    let of_pieces = proptest::string::string_regex(&format!("({pieces}){{0,24}}")).unwrap();
    prop_oneof![4 => of_pieces, 1 => any::<String>()]
}

proptest! {
    #[test]
    fn different_names_have_different_forms(names in proptest::collection::vec(any_name(), 0..12)) {
        let short = short_kernels(&names);
        let mut full = HashMap::new();
        for (name, short) in names.iter().zip(&short) {
            prop_assert_eq!(full.entry(short).or_insert(name), &name, "{}", short);
        }
        prop_assert_eq!(tight_kernels(&names, 20).len(), names.len());
    }

    #[test]
    fn simple_names_stay_as_they_are(name in "[a-z]{1,8}(_[a-z]{1,6}){0,3}(_f32)?") {
        let short = short_kernels(&[&name]);
        prop_assert_eq!(&short, &[name]);
    }

    #[test]
    fn a_form_is_no_wider_than_its_name(name in any_name()) {
        prop_assert!(short_kernels(&[&name])[0].width() <= name.width());
    }
}
