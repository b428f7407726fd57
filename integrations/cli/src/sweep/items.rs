//! The number of items in a step.

use std::str::FromStr;

/// The number of items in a step, as a product of numbers and the value of the setting.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Items {
    factor: f64,
    /// How many times the value is a factor.
    values: i32,
}

impl Items {
    /// As many items as the value itself.
    pub(super) fn value() -> Self {
        Self { factor: 1.0, values: 1 }
    }

    /// Returns the number of items for a value; `None` if the value is not a number.
    pub(super) fn with(&self, value: &str) -> Option<f64> {
        let value = if self.values == 0 { 1.0 } else { value.trim().parse::<f64>().ok()? };
        let items = self.factor * value.powi(self.values);
        (items.is_finite() && items > 0.0).then_some(items)
    }
}

impl FromStr for Items {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut items = Self { factor: 1.0, values: 0 };
        for part in text.split('*').map(str::trim) {
            match part.parse::<f64>() {
                _ if part == "{}" => items.values += 1,
                Ok(number) if number.is_finite() && number > 0.0 => items.factor *= number,
                _ => return Err(format!("{part:?} is neither {{}} nor a number above 0")),
            }
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::Items;

    #[test]
    fn items_are_a_product() {
        let items = |text: &str, value| text.parse::<Items>().unwrap().with(value);
        assert_eq!([items("{}", "16"), items("{}*8", "16"), items("64", "x")], [Some(16.0), Some(128.0), Some(64.0)]);
        assert_eq!([items("{}", "x"), items("{}", "0"), items("{}", "inf")], [None; 3]);
        for wrong in ["", "{}+1", "-1", "nan", "2**3"] {
            assert!(wrong.parse::<Items>().is_err(), "{wrong}");
        }
    }
}
