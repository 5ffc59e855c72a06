//! Pages hold together: what they link to is there.

use super::*;
use crate::report::fixture;

fn run(place: &str) -> Run {
    let mut results = fixture::results(&["f37", "f38"], &["base", "opt", "fast"]);
    for (row, native, mounted) in [("f37", 100.0, 70.0), ("f38", 100.0, 99.0)] {
        fixture::run(&mut results, row, "native", &[native; 3]);
        for config in ["base", "opt", "fast"] {
            fixture::run(&mut results, row, config, &[mounted; 3]);
        }
    }
    results.notes.push("a <note>".into());
    Run {
        place: place.to_owned(),
        link: Some(format!("../{place}")),
        results,
    }
}

/// The targets of the links of a page, from the directory that all pages are in.
fn links(path: &str, text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split(')').next());
    let targets = targets.map(|target| match (target.strip_prefix("../"), target) {
        (Some(up), _) if path.contains('/') => up.to_owned(),
        (None, own) if own.starts_with('#') => format!("{path}{own}"),
        _ => target.to_owned(),
    });
    targets.collect()
}

#[test]
fn links_between_the_pages_hold() {
    let pages = pages(&[run("a"), run("b")], "make", true);
    let names: Vec<&str> = pages.iter().map(|(path, _)| path.as_str()).collect();
    let reasons = ["papers/fast17-disk.md", "papers/fast17-disk-2.md"];
    assert_eq!(names, [SUMMARY, reasons[0], reasons[1]]);
    for (path, text) in &pages {
        for link in links(path, text) {
            let (target, anchor) = link.split_once('#').unwrap_or((&link, ""));
            if [METHOD, "../a", "../b"].contains(&target) {
                continue;
            }
            let page = pages.iter().find(|(path, _)| path == target);
            let (_, page) = page.unwrap_or_else(|| panic!("{path}: {link}"));
            let mut headings = page.lines().filter_map(|l| l.strip_prefix('#'));
            let found = headings.any(|h| slug(h.trim_start_matches('#').trim()) == anchor);
            assert!(anchor.is_empty() || found, "{path}: {link}");
        }
    }
    let summary = &pages[0].1;
    assert!(
        summary.contains("[f37](papers/fast17-disk.md#f37)"),
        "{summary}"
    );
    assert!(
        !summary.contains("f38]("),
        "green rows need no reason: {summary}"
    );
    let second = &pages[2].1;
    assert!(
        second.contains("[papers.md](../papers.md#fast17-on-disk-2)"),
        "{second}"
    );
    assert!(second.contains("(../../b)"), "{second}");
    assert!(second.contains("- a &lt;note>"), "{second}");
}

#[test]
fn one_page_has_all_and_links_nowhere() {
    let page = page(&[Run {
        link: None,
        ..run("a")
    }]);
    assert_eq!(links(SUMMARY, &page), Vec::<String>::new());
    assert!(
        page.contains("#### f37") && page.contains("Raw data: `a`"),
        "{page}"
    );
}

#[test]
fn the_preset_of_every_day_comes_before_those_of_the_papers() {
    let order = |configs: &[&str]| {
        let results = fixture::results(&["f37"], configs);
        Analysis::of(&results)
            .compared()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        order(&["base", "opt", "fast", "mine"]),
        "fast base opt mine"
    );
    assert_eq!(order(&["mine", "fast"]), "mine fast");
    assert_eq!(order(&["mine", "opt", "fast"]), "mine fast opt");
}
