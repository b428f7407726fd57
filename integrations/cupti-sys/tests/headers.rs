//! Checks of structs, constants and functions against NVIDIA's headers of several releases.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod support;

use cupti_sys::{
    Cupti, attribute, cbid, copy_kind, domain, flush, kind, memory_kind, object_kind, overhead_kind, result, site,
    sync_type, thread_id_type,
};
use std::collections::HashSet;
use support::{CALLBACK_STRUCTS, RECORDS, Release, Struct, bytes_and_class, c_fields, releases};

const CONSTANTS: [&[(&str, u32)]; 13] = [
    kind::ALL,
    result::ALL,
    domain::ALL,
    site::ALL,
    flush::ALL,
    thread_id_type::ALL,
    attribute::ALL,
    copy_kind::ALL,
    memory_kind::ALL,
    sync_type::ALL,
    overhead_kind::ALL,
    object_kind::ALL,
    cbid::ALL,
];

/// Releases that lack PM sampling, and functions that enable the records of one API function.
const WITHOUT_PM_SAMPLING: [&str; 2] = ["12.0", "12.4"];

/// Returns C source that compiles only if each field has our offset, size and class.
fn same_layout(c_name: &str, layout: &Struct) -> String {
    let mut source = String::new();
    for (field, offset, rust_type) in layout.fields {
        let (bytes, class) = bytes_and_class(rust_type);
        for c_field in c_fields(layout.name, field) {
            let about = format!("{}::{field} in {c_name}", layout.name);
            let c_type = format!("__typeof__((({c_name} *)0)->{c_field})");
            for fact in [
                format!("offsetof({c_name}, {c_field}) == {offset}"),
                format!("sizeof({c_type}) == {bytes}"),
                class.holds_for(&c_type),
            ] {
                source.push_str(&format!("_Static_assert({fact}, \"{about}\");\n"));
            }
        }
    }
    source
}

/// Returns C source that compiles only if the constant has this value.
fn same_value(name: &str, value: u32) -> String {
    format!("_Static_assert({name} == {value}u, \"{name}\");\n")
}

fn words(text: &str) -> HashSet<&str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').collect()
}

fn check(release: &Release, source: &str) {
    assert!(!source.is_empty());
    if let Err(errors) = release.compile(source, &["-fsyntax-only"]) {
        panic!("different in CUDA {}: {errors}", release.name);
    }
}

#[test]
fn every_field_of_a_record_lies_where_nvidia_puts_it() {
    for release in releases() {
        let layouts = RECORDS.iter().map(|record| &record.layout);
        let source: Vec<_> = layouts.map(|layout| same_layout(&release.newest(layout.c_names[0]), layout)).collect();
        check(&release, &source.concat());
    }
}

#[test]
fn every_field_of_what_callbacks_get_lies_where_nvidia_puts_it() {
    for release in releases() {
        let layouts = CALLBACK_STRUCTS.iter().flat_map(|layout| layout.c_names.iter().map(move |name| (name, layout)));
        check(&release, &layouts.map(|(name, layout)| same_layout(name, layout)).collect::<String>());
    }
}

#[test]
fn every_field_and_size_of_parameters_is_what_nvidia_expects() {
    for release in releases().filter(|release| !WITHOUT_PM_SAMPLING.contains(&release.name)) {
        let mut source = String::new();
        for &(c_name, fields, size) in Cupti::PARAMS {
            for (field, offset, rust_type) in fields {
                let (bytes, _) = bytes_and_class(rust_type);
                let c_type = format!("__typeof__((({c_name} *)0)->{field})");
                for fact in [format!("offsetof({c_name}, {field}) == {offset}"), format!("sizeof({c_type}) == {bytes}")]
                {
                    source.push_str(&format!("_Static_assert({fact}, \"{c_name}.{field}\");\n"));
                }
            }
            // Later releases append fields, and know by the size that a caller does not have them.
            source.push_str(&format!("_Static_assert({c_name}_STRUCT_SIZE >= {size}, \"{c_name}\");\n"));
            let end = fields.last().map_or(16, |(_, offset, rust_type)| offset + bytes_and_class(rust_type).0);
            assert_eq!(end, size, "{c_name}");
        }
        check(&release, &source);
    }
}

#[test]
fn every_constant_has_the_value_that_nvidia_gives_it_and_the_newest_release_has_all() {
    let newest = releases().next_back().map(|newest| newest.name);
    for release in releases() {
        let headers = release.headers();
        let known = words(&headers);
        let constants =
            CONSTANTS.into_iter().flatten().filter(|(name, _)| Some(release.name) == newest || known.contains(name));
        check(&release, &constants.map(|&(name, value)| same_value(name, value)).collect::<String>());
    }
}

#[test]
fn the_newest_version_of_a_struct_is_the_one_that_the_headers_speak_of() {
    for release in releases() {
        let headers = release.headers();
        for record in RECORDS {
            let name = release.newest(record.layout.c_names[0]);
            let of = record.kinds[0];
            let (kind, _) = kind::ALL.iter().find(|(_, value)| *value == of).unwrap();
            // The comment of a kind in the header names the struct of its records.
            let before = headers.split(&format!("\n  {kind} ")).next().unwrap();
            let comment = before.rsplit("/**").next().unwrap();
            assert!(words(comment).contains(name.as_str()), "{kind} of CUDA {}: {name}? {comment}", release.name);
        }
    }
}

/// Returns the parameter types of a function in the headers; `None` if they do not declare it.
fn parameters(headers: &str, function: &str) -> Option<Vec<String>> {
    let declaration = format!("CUPTIAPI {function}(");
    let (_, after) = headers.split_once(&declaration)?;
    let parameters = after.split_once(");").unwrap().0;
    let types = parameters.split(',').map(|parameter| {
        // The type is the part before the name: `size_t *` of `size_t *valueSize`.
        parameter.trim().trim_end_matches(|c: char| c.is_alphanumeric() || c == '_').trim().to_owned()
    });
    Some(if parameters.trim() == "void" { Vec::new() } else { types.collect() })
}

#[test]
fn every_function_takes_what_we_give_it() {
    for release in releases() {
        let headers = release.headers();
        let mut source = String::new();
        for (function, ours) in Cupti::FUNCTIONS {
            let Some(theirs) = parameters(&headers, function) else {
                let later = ["cuptiActivityEnable", "cuptiPmSampling", "cuptiProfilerHost"];
                let is_later = later.iter().any(|start| function.starts_with(start));
                assert!(
                    is_later && WITHOUT_PM_SAMPLING.contains(&release.name),
                    "CUDA {} has no {function}",
                    release.name
                );
                continue;
            };
            assert_eq!(ours.len(), theirs.len(), "{function} of CUDA {} takes {theirs:?}", release.name);
            for (ours, theirs) in ours.iter().zip(&theirs) {
                let (bytes, class) = bytes_and_class(ours);
                let is_class = class.holds_for(theirs);
                let message = format!("{function}: {theirs} is no {ours}");
                source
                    .push_str(&format!("_Static_assert(sizeof({theirs}) == {bytes} && {is_class}, \"{message}\");\n"));
            }
        }
        check(&release, &source);
    }
}

#[test]
fn what_is_wrong_is_noticed() {
    let Some(release) = releases().next() else { return };
    let right = Struct { name: "ActivityApi", c_names: &[], fields: &[("process_id", 24, "u32")] };
    let wrong: [&[_]; 4] = [
        &[("process_id", 28, "u32")],
        &[("process_id", 24, "u64")],
        &[("process_id", 24, "i32")],
        &[("no_such_field", 24, "u32")],
    ];
    let compile = |source: String| release.compile(&source, &["-fsyntax-only"]);
    compile(same_layout("CUpti_ActivityAPI", &right)).unwrap();
    for fields in wrong {
        let error = compile(same_layout("CUpti_ActivityAPI", &Struct { fields, ..right })).unwrap_err();
        assert!(
            error.contains("ActivityApi::process_id in CUpti_ActivityAPI") || error.contains("noSuchField"),
            "{error}"
        );
    }
    compile(same_value("CUPTI_ACTIVITY_KIND_DRIVER", 4)).unwrap();
    compile(same_value("CUPTI_ACTIVITY_KIND_DRIVER", 5)).unwrap_err();
    compile(same_value("CUPTI_ACTIVITY_KIND_OF_NOBODY", 5)).unwrap_err();
}
