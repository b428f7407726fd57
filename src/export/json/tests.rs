use super::{Json, Members, Quoted};
use crate::trace::Value;
use proptest::prelude::*;

fn written(write: impl FnOnce(&mut Json)) -> serde_json::Value {
    let mut json = Json::default();
    write(&mut json);
    serde_json::from_slice(json.as_bytes()).unwrap()
}

#[test]
fn numbers_json_cannot_say_are_strings() {
    assert_eq!(
        written(|json| {
            json.float(f64::NAN);
        }),
        "NaN"
    );
    assert_eq!(
        written(|json| {
            json.float(f64::NEG_INFINITY);
        }),
        "-inf"
    );
    assert_eq!(
        written(|json| {
            json.value(&Value::F64(1e300));
        }),
        1e300
    );
}

#[test]
fn members_are_separated_wherever_they_come_from() {
    let kept = Members::new(|object| {
        object.number("b", 2);
        object.bool("c", true);
    });
    let mut json = Json::default();
    json.object(|object| {
        object.members(&Members::default());
        object.members(&kept);
        object.entry("d\"", &Value::from(0.5));
        object.array("e", |array| {
            array.number(1);
            array.array(|inner| inner.string("x"));
            array.object(|inner| inner.null("y"));
        });
        object.quoted("f", &Quoted::new("\n"));
        object.spaced_number("g", 7);
    });
    let expected = r#"{"b":2,"c":true,"d\"":0.5,"e":[1,["x"],{"y":null}],"f":"\n","g": 7}"#;
    assert_eq!(String::from_utf8(json.as_bytes().to_vec()).unwrap(), expected);
    let lines = Json::of_lines(|object| {
        object.members(&kept);
        object.array_of_lines("h", |array| [3, 4].iter().for_each(|&number| array.number(number)));
    });
    assert_eq!(String::from_utf8(lines.as_bytes().to_vec()).unwrap(), "\"b\":2,\"c\":true,\n\"h\":[3,\n4]");
}

proptest! {
    #[test]
    fn any_text_reads_back(text in ".*") {
        prop_assert_eq!(written(|json| { json.string(&text); }), text);
    }

    #[test]
    fn any_float_reads_back(number in any::<f64>().prop_filter("finite", |number| number.is_finite())) {
        prop_assert_eq!(written(|json| { json.float(number); }).as_f64(), Some(number));
    }
}
