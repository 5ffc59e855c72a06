//! The figures of the two papers that the report is held against.

use serde::{Deserialize, Serialize};

use crate::stats::Class;

const TABLE: &str = include_str!("../data/fast17-table3.csv");

/// One row of table 3 of FAST'17: ext4's operations per second and the difference of both StackFS
/// configurations in percent, on the paper's HDD and SSD.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PaperRow {
    /// Row number, 1 to 45.
    pub row: u32,
    /// Name of the workload.
    pub workload: String,
    /// I/O size in KiB where the workload has one.
    pub io_kib: Option<u32>,
    /// ext4 on the HDD, operations per second.
    pub hdd_ext4_ops: f64,
    /// StackfsBase on the HDD, percent.
    pub hdd_base_pct: f64,
    /// StackfsOpt on the HDD, percent.
    pub hdd_opt_pct: f64,
    /// ext4 on the SSD, operations per second.
    pub ssd_ext4_ops: f64,
    /// StackfsBase on the SSD, percent.
    pub ssd_base_pct: f64,
    /// StackfsOpt on the SSD, percent.
    pub ssd_opt_pct: f64,
}

/// A column of the table: its heading, and a row's difference in percent.
pub type Column = (&'static str, fn(&PaperRow) -> f64);

/// The four columns of differences.
pub const COLUMNS: [Column; 4] = [
    ("HDD base", |row| row.hdd_base_pct),
    ("HDD opt", |row| row.hdd_opt_pct),
    ("SSD base", |row| row.ssd_base_pct),
    ("SSD opt", |row| row.ssd_opt_pct),
];

/// All rows of FAST'17, in order.
#[must_use]
pub fn fast17() -> Vec<PaperRow> {
    csv::Reader::from_reader(TABLE.as_bytes())
        .deserialize()
        .filter_map(Result::ok)
        .collect()
}

/// How many of `differences` fall in each class, best class first.
#[must_use]
pub fn count_classes(differences: impl IntoIterator<Item = f64>) -> [usize; 4] {
    let mut counts = [0; 4];
    for difference in differences {
        if let Some(count) = counts.get_mut(Class::of_difference(difference) as usize) {
            *count += 1;
        }
    }
    counts
}

/// What SAC'10 found in a figure (2, 3a to 3f, 4 or 5).
#[must_use]
pub fn sac10_finding(figure: &str) -> &'static str {
    match figure {
        "2" => {
            "No effect of larger requests at 4 KB; about twice as fast at 32 KB; flat to 128 KB."
        }
        "3a" => "FUSE costs about 25%; Java more.",
        "3b" => "Native far ahead below 100 MB, then all converge on the disk.",
        "3c" => "FUSE under 5% overhead to 200 MB, then a little less: data is cached twice.",
        "3d" => "Native holds files up to 450 MB in cache; FUSE about half of that.",
        "3e" => "FUSE sustains more than native: it reads ahead twice.",
        "3f" => "No visible overhead.",
        "4" => "Native 84 s, FUSE 91 s (+8%), Java over +60%.",
        "5" => "FUSE comparable to native; Java little more.",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper counts its own rows: our classes must give the same counts from its table.
    #[test]
    fn classes_reproduce_the_counts_of_the_paper() {
        let rows = fast17();
        assert_eq!(rows.len(), 45);
        let counts = |pick: fn(&PaperRow) -> f64| count_classes(rows.iter().map(pick));
        assert_eq!(counts(|r| r.hdd_base_pct), [23, 7, 9, 6]);
        assert_eq!(counts(|r| r.hdd_opt_pct), [29, 10, 4, 2]);
        assert_eq!(counts(|r| r.ssd_base_pct), [27, 5, 6, 7]);
        assert_eq!(counts(|r| r.ssd_opt_pct), [29, 4, 7, 5]);
    }

    #[test]
    fn rows_are_numbered_in_order() {
        for (index, row) in fast17().iter().enumerate() {
            assert_eq!(row.row as usize, index + 1);
        }
    }
}
