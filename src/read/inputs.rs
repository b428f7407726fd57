//! The inputs of torch's operators, as fields that follow the convention.

use super::{callsites::Callsites, raw::Raw};
use crate::trace::{CallsiteId, FieldData, Value, convention};

/// Adds the shapes or the element types of an operator's inputs, by their numbers.
pub(super) fn add_inputs(
    key: &str,
    raw: Raw<'_>,
    callsite: CallsiteId,
    callsites: &mut Callsites,
    fields: &mut Vec<FieldData>,
) {
    let prefix = if key == "Input Dims" { convention::SHAPE } else { convention::DTYPE };
    for (index, input) in raw.list().unwrap_or_default().into_iter().enumerate() {
        if let Some(value) = callsites.value(input).filter(|value| value.as_str() != Some("")) {
            let value = value.as_str().and_then(dtype).map_or_else(|| value.clone(), Value::from);
            let field = callsites.field(callsite, &format!("{prefix}{index}"), value);
            fields.push(field);
        }
    }
}

/// Converts a C++ element type name, as torch uses, to the convention's.
fn dtype(name: &str) -> Option<&'static str> {
    Some(match name {
        "float" => "f32",
        "double" => "f64",
        "c10::Half" => "f16",
        "c10::BFloat16" => "bf16",
        "long int" => "i64",
        "int" => "i32",
        "unsigned char" => "u8",
        _ => return None,
    })
}

/// Adds the floating-point operations of an operator, if torch counts them and the shapes suffice.
pub(super) fn add_flops(
    name: &str,
    dims: Raw<'_>,
    concrete: Raw<'_>,
    callsite: CallsiteId,
    callsites: &mut Callsites,
    fields: &mut Vec<FieldData>,
) {
    if let Some(flops) = flops(name, dims, concrete) {
        let field = callsites.field(callsite, convention::FLOPS, Value::U64(flops));
        fields.push(field);
    }
}

/// The floating-point operations that torch's profiler counts for an operator with these inputs.
fn flops(name: &str, dims: Raw<'_>, concrete: Raw<'_>) -> Option<u64> {
    let product = |dims: &[u64]| dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim));
    match name {
        "aten::mm" => {
            let inputs = shapes(dims)?;
            matmul(inputs.first()?, inputs.get(1)?)
        }
        "aten::addmm" => {
            let inputs = shapes(dims)?;
            matmul(inputs.get(1)?, inputs.get(2)?)
        }
        "aten::bmm" => {
            let inputs = shapes(dims)?;
            let (&[batch, m, k], &[_, _, n]) = (&**inputs.first()?, &**inputs.get(1)?) else { return None };
            product(&[2, batch, m, k, n])
        }
        "aten::baddbmm" => {
            let inputs = shapes(dims)?;
            let (&[batch, m, k], &[_, _, n]) = (&**inputs.get(1)?, &**inputs.get(2)?) else { return None };
            product(&[2, batch, m, k, n])
        }
        "aten::conv2d" => {
            let inputs = shapes(dims)?;
            let (&[batch, channels, height, width], &[outputs, _, rows, columns]) =
                (&**inputs.first()?, &**inputs.get(1)?)
            else {
                return None;
            };
            let concrete = concrete.list()?;
            let pair = |index: usize| -> Option<[u64; 2]> {
                let text = concrete.get(index)?.text()?;
                let mut numbers = text.trim_matches(['[', ']']).split(',').map(|number| number.trim().parse().ok());
                let first = numbers.next()??;
                Some([first, numbers.next().flatten().unwrap_or(first)])
            };
            let (stride, padding, dilation) = (pair(3)?, pair(4)?, pair(5)?);
            let groups = concrete.get(6)?.u64().filter(|groups| *groups > 0)?;
            let size = |axis: usize, input: u64, kernel: u64| {
                let reach = dilation[axis].checked_mul(kernel.checked_sub(1)?)?.checked_add(1)?;
                let room = padding[axis].checked_mul(2)?.checked_add(input)?.checked_sub(reach)?;
                Some(room.checked_div(stride[axis])? + 1)
            };
            let pixels = [size(0, height, rows)?, size(1, width, columns)?];
            let all = product(&[2, batch, pixels[0], pixels[1], rows, columns, channels, outputs])?;
            Some(all / groups)
        }
        "aten::add" | "aten::mul" => product(shapes(dims)?.first()?),
        _ => None,
    }
}

fn matmul(left: &[u64], right: &[u64]) -> Option<u64> {
    let (&[m, k], &[_, n]) = (left, right) else { return None };
    [2, m, k, n].into_iter().try_fold(1_u64, u64::checked_mul)
}

/// The shapes of all inputs, if each is a list of numbers.
fn shapes(dims: Raw<'_>) -> Option<Vec<Vec<u64>>> {
    let numbers = |list: Raw<'_>| -> Vec<u64> {
        let list = list.list().unwrap_or_default();
        list.into_iter().map(Raw::u64).collect::<Option<_>>().unwrap_or_default()
    };
    Some(dims.list()?.into_iter().map(numbers).collect())
}
