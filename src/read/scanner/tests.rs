//! The scanner takes what `serde_json` takes.

use crate::read::text::{ReaderBlocks, Text};
use proptest::prelude::*;
use serde::de::IgnoredAny;

/// Returns the text's value, if it is one value of JSON.
fn scan(text: &str) -> Result<String, String> {
    let results = [1, 2, 3, 7, 1 << 10].map(|size| scan_in_blocks(text, size));
    assert!(results.iter().all(|result| *result == results[0]), "{text:?}: {results:?}");
    let [result, ..] = results;
    result
}

fn scan_in_blocks(text: &str, size: usize) -> Result<String, String> {
    let mut blocks = ReaderBlocks::new(text.as_bytes(), size, u64::MAX);
    let mut text = Text::new(&mut blocks);
    let value = text.part(|scanner| Ok(scanner.value()?.0.to_owned()));
    let value = value.and_then(|value| text.end().map(|()| value));
    value.map_err(|error| error.to_string().replace("not a JSON trace: ", ""))
}

#[test]
fn values_are_returned_as_they_are_written() {
    for value in ["1", "-0.5e+10", "\"a\\\"b\"", "[ ]", "{\"a\": [1, {\"b\":null}], \"c\" : \"]\"}", "true"] {
        assert_eq!(scan(&format!(" {value}\n")).as_deref(), Ok(value));
    }
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    let error = |text| scan(text).unwrap_err();
    assert_eq!(error("[1,\n 2 3]"), "expected `,` or `]` at line 2 column 4");
    assert_eq!(error("{\"a\" 1}"), "expected `:` at line 1 column 6");
    assert_eq!(error("[01]"), "invalid number at line 1 column 4");
    assert_eq!(error("[1, 2"), "the file ends too early at line 1 column 5");
    assert_eq!(error("1 1"), "trailing characters at line 1 column 3");
    assert_eq!(error("[1,]"), "expected value at line 1 column 4");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn it_takes_what_serde_json_takes(text in r#"[\[\]{}:,"0-9a-c.eE+\- \\utrfalsn\n\x01é]{0,12}"#) {
        let theirs = serde_json::from_str::<IgnoredAny>(&text);
        prop_assert_eq!(scan(&text).is_ok(), theirs.is_ok(), "{:?} {:?}", scan(&text), theirs);
    }

    #[test]
    fn it_takes_what_serde_json_takes_of_documents_with_a_fault(
        index: prop::sample::Index,
        byte in prop::sample::select(&b"[]{}:,\"0-.e \\utn"[..]),
    ) {
        let mut text = r#"{"a": [1, -2.5e3, [], {}], "b\u00e9\n": {"c": [true, false, null]}, "": "x"}"#.to_owned();
        let at = index.index(text.len());
        text.replace_range(at..=at, std::str::from_utf8(&[byte]).unwrap());
        let theirs = serde_json::from_str::<IgnoredAny>(&text);
        prop_assert_eq!(scan(&text).is_ok(), theirs.is_ok(), "{} {:?} {:?}", text, scan(&text), theirs);
    }
}
