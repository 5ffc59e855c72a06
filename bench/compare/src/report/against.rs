//! Ratios to one configuration, for whoever asks what the table of all rows does not say.

use std::fmt::Write;

use super::ratio;
use crate::results::{Results, Spread};

/// What the ratios are wanted of.
pub(crate) struct Chosen<'a> {
    /// Identifiers of rows.
    pub(crate) rows: Vec<&'a str>,
    /// Numbers of clients; all where there is none.
    pub(crate) clients: &'a [usize],
    /// How the names of configurations begin; all where there is none.
    pub(crate) only: &'a [String],
}

impl Chosen<'_> {
    fn place(&self, row: &str, clients: usize) -> bool {
        self.rows.contains(&row) && (self.clients.is_empty() || self.clients.contains(&clients))
    }

    fn configuration(&self, name: &str) -> bool {
        let begins = |only: &String| name.starts_with(only.as_str());
        self.only.is_empty() || self.only.iter().any(begins)
    }
}

/// Whether a ratio is on the same side of 1 in every round.
fn side(spread: Option<Spread>) -> &'static str {
    match spread {
        Some(s) if s.least > 1.0 => "longer in every round",
        Some(s) if s.most < 1.0 => "shorter in every round",
        _ => "",
    }
}

/// A line for each configuration in each row, with the ratio of its time to that of `name`.
pub(crate) fn against(
    results: &Results,
    name: &str,
    chosen: &Chosen<'_>,
) -> Result<String, String> {
    let all = &results.run.configurations;
    if !all.iter().any(|known| known.name == name) {
        let known: Vec<&str> = all.iter().map(|known| known.name.as_str()).collect();
        return Err(format!(
            "--against {name}: not in this run, which has {}",
            known.join(", ")
        ));
    }
    let mut text = format!(
        "Medians of ratios within a round, with the least and the most.\n\n\
         | row | clients | configuration | its time / that of {name} | | its daemon CPU / that of {name} |\n\
         |---|---|---|---|---|---|\n"
    );
    for (row, clients) in results.places() {
        let Some(base) = results.cell(row, clients, name) else {
            continue;
        };
        if !chosen.place(row.id, clients) {
            continue;
        }
        for other in all.iter().filter(|other| other.name != name) {
            let cell = results.cell(row, clients, &other.name);
            let Some(cell) = cell.filter(|_| chosen.configuration(&other.name)) else {
                continue;
            };
            let time = cell.over(base);
            let _ = writeln!(
                text,
                "| {} | {clients} | {} | {} | {} | {} |",
                row.id,
                other.name,
                ratio(time),
                side(time),
                ratio(cell.cpu_over(base))
            );
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_on_the_other_side_is_neither() {
        let of = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(side(of(&[1.1, 1.2])), "longer in every round");
        assert_eq!(side(of(&[0.8, 0.9])), "shorter in every round");
        assert_eq!(side(of(&[0.9, 1.2])), "");
        assert_eq!(side(None), "");
    }

    #[test]
    fn what_is_not_chosen_is_left_out() {
        let only = ["lib".to_owned()];
        let chosen = Chosen {
            rows: vec!["lookup"],
            clients: &[2],
            only: &only,
        };
        assert!(chosen.place("lookup", 2) && chosen.configuration("libfuse"));
        assert!(!chosen.place("lookup", 1) && !chosen.place("create", 2));
        assert!(!chosen.configuration("fuser"));
    }
}
