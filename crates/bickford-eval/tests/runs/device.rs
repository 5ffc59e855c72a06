//! What is made for a run that is interrupted meanwhile.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use rustix::process::kill_process_group;

use super::*;

/// A run natively on a loop device.
fn on_device(place: &Place, device: &str) -> Command {
    let words = place.command(&["native"]);
    let words = words.get_args().map(|word| match word {
        word if word == place.path("device").as_os_str() => device.as_ref(),
        word => word,
    });
    let mut command = Command::new(program());
    command.args(words);
    command
}

/// Ctrl-C while the device is written.
#[test]
fn an_interrupt_of_the_set_up_is_one_of_the_run() {
    if !root() {
        return;
    }
    let place = Place::new(WORKLOAD);
    let image = || {
        let mut work = fs::read_dir(place.directory.path()).unwrap().flatten();
        work.any(|entry| entry.path().join("ram/image").exists())
    };
    let command = on_device(&place, "ram");
    let output = finish_after(command, |child| signal_when(image, child, Signal::INT));
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert!(said(&output).contains("--resume"), "{}", said(&output));
    is_clean(&place);
    let output = resume(&place, &[]);
    assert!(output.status.success(), "{}", said(&output));
}

/// Loop devices over files below `directory`.
fn loops(directory: &Path) -> Vec<PathBuf> {
    let directory = fs::canonicalize(directory).unwrap();
    let all = fs::read_dir("/sys/block").unwrap().flatten();
    let ours = all.filter(|device| {
        let file = fs::read_to_string(device.path().join("loop/backing_file"));
        file.is_ok_and(|file| Path::new(&file).starts_with(&directory))
    });
    ours.map(|device| Path::new("/dev").join(device.file_name()))
        .collect()
}

/// Ctrl-C, of which a terminal tells all of the process group, while losetup(8) has not said yet which device it made.
#[test]
fn an_interrupt_of_losetup_leaves_no_loop_device() {
    if !root() {
        return;
    }
    let place = Place::new(WORKLOAD);
    let (tools, made, go) = (place.path("tools"), place.path("made"), place.path("go"));
    let script = format!(
        "#!/bin/sh\nPATH=${{PATH#*:}}\nname=$(losetup \"$@\") || exit\n: > {}\n\
         while [ -e {} ] && ! [ -e {} ]; do sleep 0.01; done\necho \"$name\"\n",
        made.display(),
        made.display(),
        go.display()
    );
    fs::create_dir(&tools).unwrap();
    let losetup = tools.join("losetup");
    fs::write(&losetup, script).unwrap();
    fs::set_permissions(&losetup, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = on_device(&place, "disk");
    command
        .env("PATH", format!("{}:{path}", tools.display()))
        .process_group(0);
    let output = finish_after(command, |child| {
        let group = wait_until(|| made.exists(), child);
        kill_process_group(group, Signal::INT).unwrap();
        fs::write(&go, "").unwrap();
    });
    let end = Instant::now() + Duration::from_secs(30);
    let mut left = loops(place.directory.path());
    // Others, as udevd(8), may have it open for a moment.
    while !left.is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
        left = loops(place.directory.path());
    }
    for device in &left {
        let mut detach = Command::new("losetup");
        detach.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        detach.arg("--detach").arg(device);
        finish(detach);
    }
    assert!(left.is_empty(), "{left:?}: {}", said(&output));
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
}
