//! Tests of the table of spans.

use super::Average;
use std::{fmt, time::Duration};
use unicode_width::UnicodeWidthStr;

fn row(name: &str, micros: u64, calls: u64) -> Average {
    Average {
        name: name.to_owned(),
        target: "model".to_owned(),
        calls,
        outermost_calls: calls,
        self_cpu: Duration::from_micros(micros / 2),
        total_cpu: Duration::from_micros(micros),
        average_cpu: Duration::from_micros(micros / calls),
        self_percent: 12.5,
        total_percent: 25.0,
        ..Average::default()
    }
}

fn table(rows: &[Average], left_out: usize, width: usize) -> String {
    struct Table<'a>(&'a [Average], usize, usize);
    impl fmt::Display for Table<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            Average::table(self.0).left_out(self.1).width(self.2).write(f)
        }
    }
    format!("\n{}", Table(rows, left_out, width))
}

#[test]
fn numbers_are_to_the_right_and_names_to_the_left() {
    let rows = [row("train_step", 12_000, 3), row("模型", 600, 60)];
    assert_eq!(
        table(&rows, 2, 120),
        "
----------  ------  ----------  -------  ----------  ---------  ----------
Name        Self %   Self time  Total %  Total time   Avg time  # of Calls
----------  ------  ----------  -------  ----------  ---------  ----------
train_step  12.5 %    6.000 ms   25.0 %   12.000 ms   4.000 ms           3
模型        12.5 %  300.000 µs   25.0 %  600.000 µs  10.000 µs          60
----------  ------  ----------  -------  ----------  ---------  ----------
2 more rows
"
    );
}

#[test]
fn columns_that_say_nothing_are_left_out_and_others_give_way() {
    let mut rows = [row("model::layers::0::attention::query", 12_000, 3), row("model::layers::0::mlp", 600, 60)];
    rows[0].shapes = Some("[64, 512], [512, 512]".to_owned());
    rows[0].total_flops = 33_554_432;
    let expected = include_str!("shapes.txt");
    assert_eq!(table(&rows, 0, 120).trim_start(), expected);
}

#[test]
fn rates_and_utilisation_are_shown_where_there_is_room() {
    let mut rows = [row("matmul", 12_000, 3), row("add", 600, 60)];
    rows[0].total_flops = 2_000_000_000;
    rows[0].flops_per_second = Some(61.25e9);
    rows[0].gpu_mfu = Some(0.091_418);
    assert_eq!(
        table(&rows, 0, 120),
        "
------  ------  ----------  -------  ----------  ---------  ----------  -----------  ------------  -------
Name    Self %   Self time  Total %  Total time   Avg time  # of Calls  Total FLOPs        FLOP/s  GPU MFU
------  ------  ----------  -------  ----------  ---------  ----------  -----------  ------------  -------
matmul  12.5 %    6.000 ms   25.0 %   12.000 ms   4.000 ms           3   2.00 GFLOP  61.2 GFLOP/s    0.1 %
add     12.5 %  300.000 µs   25.0 %  600.000 µs  10.000 µs          60            –             –        –
------  ------  ----------  -------  ----------  ---------  ----------  -----------  ------------  -------
"
    );
    let narrow = table(&rows, 0, 70);
    assert!(narrow.ends_with("hidden to fit the terminal: Total %, Self %, Total FLOPs, FLOP/s\n"), "{narrow}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let rows = [row(&"x".repeat(500), 1, 1), row("y", 1, 1)];
    for width in [60, 80, 90, 100, 200, 700] {
        assert!(table(&rows, 0, width).lines().all(|line| line.width() <= width), "{width}");
    }
}

#[test]
fn rows_of_one_name_say_where_they_are_from() {
    let mut rows = [row("forward", 2, 1), row("forward", 1, 1), row("other", 1, 1)];
    rows[1].target = "loss".to_owned();
    let table = table(&rows, 0, 120);
    assert!(["model::forward ", "loss::forward ", "\nother "].iter().all(|name| table.contains(name)), "{table}");
}
