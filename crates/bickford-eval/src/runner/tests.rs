//! What a runner has done, and when.

use super::*;

/// A program in the worker's place says what it is told to do.
#[test]
fn caches_are_warmed_before_a_run_and_not_within_it() {
    let place = tempfile::tempdir().unwrap();
    let told = place.path().join("told");
    let again = ["/bin/sh", "-c"].map(OsString::from).to_vec();
    let script = format!(
        "cat >> '{0}'; echo >> '{0}'; echo '{{\"done\":{{\"operations\":1,\"bytes\":1,\"files\":0,\"elapsed_s\":1.0,\"latencies\":[]}}}}'",
        told.display()
    );
    let ui = Ui {
        progress: false,
        again: [again, vec![script.into(), "worker".into()]].concat(),
        bickford: "bickford".into(),
    };
    let mut settings = crate::report::fixture::results(&[], &[]).settings;
    settings.rows = crate::rows::sac10(0.001);
    let ids = ["s3c-25", "s3e-25"];
    settings.rows.retain(|row| ids.contains(&row.id.as_str()));
    settings.rounds = 1;
    settings.directory = place.path().to_owned();
    settings.device = crate::host::device::Choice::Directory(place.path().to_owned());
    let mut store = Store::create(&place.path().join("out"), settings).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    Runner::new(&mut store, &ui, stop).unwrap().run().unwrap();
    let errors = ids.map(|row| store.results.error(row, "native"));
    assert_eq!(errors, [None, None]);
    let told = fs::read_to_string(told).unwrap();
    let jobs: Vec<&str> = told
        .lines()
        .filter_map(|job| job.split('"').nth(1))
        .collect();
    assert_eq!(
        jobs,
        ["prepare", "warm", "run", "warm", "run", "run", "run"]
    );
}

#[test]
fn what_was_over_before_the_clock_moved_has_no_cost() {
    assert_eq!(per_operation(0.0, 900), None);
    assert_eq!(per_operation(0.02, 0), None);
    assert_eq!(per_operation(0.02, 1000), Some(20_000.0));
}
