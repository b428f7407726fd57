//! Counts what an exporter sent over the network: how much arrived, and how much was lost.

use std::fmt;

/// What an exporter sent over the network: how much arrived, and how much was lost. See
/// [`StepExporter::deliveries`](crate::export::StepExporter::deliveries).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Delivery {
    /// What was sent, in the plural: `spans`.
    pub what: &'static str,
    /// How many arrived.
    pub sent: u64,
    /// How many were lost, by cause.
    pub lost: Vec<(&'static str, u64)>,
    /// The last error.
    pub problem: Option<String>,
}

impl Delivery {
    /// How many were lost.
    pub fn lost(&self) -> u64 {
        self.lost.iter().map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Delivery {
    /// `12 spans sent`, or `12 spans sent, 3 lost: 3 refused (http://localhost:4318/v1/traces answered 404 Not Found)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} sent", self.sent, self.what)?;
        if self.lost() > 0 {
            write!(f, ", {} lost:", self.lost())?;
            for (index, (cause, count)) in self.lost.iter().enumerate() {
                write!(f, "{} {count} {cause}", if index == 0 { "" } else { "," })?;
            }
        }
        self.problem.iter().try_for_each(|problem| write!(f, " ({problem})"))
    }
}

#[cfg(test)]
mod tests {
    use super::Delivery;

    #[test]
    fn it_says_what_is_missing_and_why() {
        let mut delivery = Delivery { what: "spans", sent: 12, ..Delivery::default() };
        assert_eq!(delivery.to_string(), "12 spans sent");
        delivery.lost = vec![("no_room", 2), ("refused", 1)];
        delivery.problem = Some("404 Not Found".to_owned());
        assert_eq!(delivery.to_string(), "12 spans sent, 3 lost: 2 no_room, 1 refused (404 Not Found)");
    }
}
