//! More files than descriptors: each is created, walked and looked at twice.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use bickford_conformance::{Combination, Mount, Scratch, Watchdog, full_length, require_root};

const DESCRIPTORS: u32 = 1024;
const PER_DIRECTORY: u32 = 1000;
const DEADLINE: Duration = Duration::from_secs(4 * 3600);

fn create(directory: &Path, files: u32) {
    for index in 0..files {
        let folder = directory.join(format!("folder-{}", index / PER_DIRECTORY));
        if index % PER_DIRECTORY == 0 {
            fs::create_dir(&folder).expect("folder");
        }
        File::create(folder.join(format!("file-{index}"))).expect("file");
    }
}

/// Lists everything and looks at each name; gives the number of files.
fn walk(directory: &Path) -> u32 {
    let mut files = 0;
    for folder in fs::read_dir(directory).expect("list") {
        for entry in fs::read_dir(folder.expect("entry").path()).expect("list") {
            let metadata = fs::symlink_metadata(entry.expect("entry").path()).expect("stat");
            assert!(metadata.is_file() && metadata.len() == 0);
            files += 1;
        }
    }
    files
}

#[test]
fn files_beyond_the_descriptor_limit_are_no_matter() {
    require_root();
    let files = if full_length() { 1_000_000 } else { 10_000 };
    let scratch = Scratch::new("many");
    let watchdog = Watchdog::start("many files on the native directory", DEADLINE);
    let native = scratch.directory("native");
    create(&native, files);
    assert_eq!(walk(&native), files);
    drop(watchdog);
    for combination in Combination::selected() {
        let lower = scratch.directory(&combination.to_string());
        let mount = Mount::over(&lower, &combination)
            .descriptor_limit(DESCRIPTORS)
            .deadline(DEADLINE)
            .must_start();
        let before = resident_bytes(&mount);
        create(mount.path(), files);
        assert_eq!(walk(mount.path()), files, "first walk");
        assert_eq!(walk(mount.path()), files, "second walk");
        let after = resident_bytes(&mount);
        let descriptors = mount.daemon_descriptors();
        let inodes = u64::from(files + files.div_ceil(PER_DIRECTORY));
        eprintln!(
            "{combination}: {inodes} inodes looked up: {} bytes of daemon memory each, \
             {descriptors} descriptors of {DESCRIPTORS} ({} KiB resident before, {} KiB after)",
            after.saturating_sub(before) / inodes,
            before >> 10,
            after >> 10,
        );
        assert!(descriptors < DESCRIPTORS as usize);
        assert_eq!(walk(&lower), files, "below");
        mount.finish();
        fs::remove_dir_all(&lower).expect("remove");
    }
}

fn resident_bytes(mount: &Mount) -> u64 {
    mount.daemon_status("VmRSS").expect("VmRSS") << 10
}
