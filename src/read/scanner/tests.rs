//! The scanner takes what `serde_json` takes.

use super::{Scanner, plain_until};
use proptest::prelude::*;
use serde::de::IgnoredAny;

/// Whether the text is one value of JSON, and the value.
fn scan(text: &str) -> Result<&str, String> {
    let mut scanner = Scanner::new(text);
    let value = scanner.value().and_then(|value| scanner.end().map(|()| value));
    value.map(|value| value.0).map_err(|wrong| scanner.error(wrong).to_string())
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

    #[test]
    fn the_end_of_plain_text_is_found(bytes in prop::collection::vec(any::<u8>(), 0..40), at in 0_usize..41) {
        let is_plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
        let expected = (at..bytes.len()).find(|&at| !is_plain(bytes[at])).unwrap_or(at.max(bytes.len()));
        prop_assert_eq!(plain_until(&bytes, at), expected);
    }
}
