//! Specs, errors, order, switches.

use bickford::abi::Opcode;
use bickford_layers::{Registry, build};

use super::below::*;

fn error(spec: &str) -> String {
    let built = build(&specs(&[spec]), Box::new(Below::default()));
    built.err().unwrap().to_string()
}

#[test]
fn what_is_wrong_is_said_with_what_was_meant() {
    for (spec, says) in [
        ("fualt:op=read", "did you mean \"fault\"?"),
        ("somethingelse", "there are log, readonly, stats"),
        ("fault:op=read,erno=EIO", "errno=NAME is missing"),
        (
            "fault:op=read,errno=EIO,probabilty=1",
            "did you mean \"probability\"?",
        ),
        ("fault:op=raed,errno=EIO", "did you mean \"read\"?"),
        ("fault:op=read,errno=EIOO", "did you mean EIO?"),
        (
            "fault:op=read,errno=EIO,probability=2",
            "a number from 0 to 1",
        ),
        ("fault:op=release,errno=EIO", "reach nobody"),
        ("fault:op=read|releasedir,errno=EIO", "reach nobody"),
        ("fault:op=read,errno=EIO,path=a[", "path=a["),
        ("readonly:x", "unknown option \"x\""),
        ("delay", "read=5ms"),
        ("delay:read=5", "read=5: 5ms, 1ms..10ms"),
        ("delay:raed=5ms", "did you mean \"read\"?"),
        ("delay:read=5ms,read=1ms", "read is given twice"),
        ("throttle", "a bound is missing"),
        ("throttle:read=0", "let nothing through"),
        ("throttle:read=1M,per=group", "user or all is meant"),
        ("log:format=xml", "text or json is meant"),
        ("log:file=/nonexistent/log", "/nonexistent/log"),
        ("stats:file=/nonexistent/stats", "/nonexistent/stats"),
        (
            "stats:switches=/nonexistent/switches",
            "/nonexistent/switches",
        ),
        ("stats:switches=/dev/zero", "more than 1048576 bytes"),
        ("log:size=0", "each line would be a file"),
    ] {
        let error = error(spec);
        assert!(error.contains(says), "{spec}: {error}");
        assert!(error.starts_with("layer "), "{spec}: {error}");
    }
}

#[test]
fn the_first_layer_is_the_outermost_and_the_summary_says_so() {
    let fixture = fixture(&["stats", "fault:op=read|flush,errno=EIO", "readonly"]);
    let lines: Vec<_> = fixture.summary.lines().collect();
    assert_eq!(
        lines,
        [
            "stats: to the log at the end",
            "fault: EIO instead of read|flush",
            "readonly"
        ]
    );
    let off: Vec<_> = fixture.summary.turned_off().collect();
    assert_eq!(
        off,
        [
            "fault: kernel pass-through is off: these operations are to fail",
            "fault: close without FLUSH is off: these operations are to fail",
            "readonly: zero-message open is off: opening for writing must be refused",
        ]
    );
    let needs = fixture.summary.needs();
    assert!(needs.data && needs.opens && needs.flushes && !needs.contents);
}

#[test]
fn layers_that_do_not_need_it_turn_nothing_off() {
    let fixture = fixture(&["log:file=/dev/null", "stats", "delay:getattr=1ms"]);
    assert_eq!(fixture.summary.turned_off().count(), 0);
}

#[test]
fn every_layer_has_switches() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("switches.toml");
    std::fs::write(&path, "[operations.mkdir]\npre = false\n").unwrap();
    let spec = format!("readonly:switches={}", path.display());
    let mut fixture = fixture(&[&spec]);
    assert_eq!(fixture.errno(Opcode::Mkdir, 1, &mkdir(b"dir")), 0);
    let refused = fixture.errno(Opcode::Create, 1, &create(b"file"));
    assert_eq!(refused, libc::EROFS);
    std::fs::write(&path, "[operations.mkdri]\npre = false\n").unwrap();
    let error = error(&spec);
    assert!(error.contains("line 1, column 13"), "{error}");
    assert!(error.contains("\"mkdir\""), "{error}");
}

#[test]
fn the_help_names_every_layer_and_option() {
    let registry = Registry::default();
    let help = registry.help();
    for entry in registry.entries() {
        assert!(help.contains(entry.name));
        for (option, meaning) in entry.options {
            assert!(help.contains(option) && help.contains(meaning));
        }
    }
}

#[test]
fn crypt_wants_its_key_and_passphrase() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("right"), "correct horse\n").unwrap();
    std::fs::write(path("wrong"), "battery staple\n").unwrap();
    let spec = |passphrase: &str, more: &str| {
        let (key, passphrase) = (path("key"), path(passphrase));
        format!("crypt:key={key},passphrase-file={passphrase}{more}")
    };
    let missing = error(&spec("right", ""));
    assert!(missing.contains(&path("key")), "{missing}");
    let cheap = ",create=true,memory=64K,passes=1";
    let refused = error(&spec("right", &format!("{cheap},colour=red")));
    assert!(refused.contains("colour"), "{refused}");
    let key = directory.path().join("key");
    assert!(!key.exists(), "the key of a layer that was refused is left");
    let mut made = fixture(&[&spec("right", cheap)]);
    let [new] = made.summary.made() else {
        panic!("{:?}", made.summary.made())
    };
    assert_eq!(new.path(), key);
    let dir = made.errno(Opcode::Mkdir, 1, &mkdir(b"dir"));
    assert_eq!(dir, 0);
    assert_eq!(made.summary.turned_off().count(), 3);
    fixture(&[&spec("right", ""), "stats"]);
    let again = fixture(&[&spec("right", cheap)]);
    assert!(again.summary.made().is_empty());
    let wrong = error(&spec("wrong", cheap));
    assert!(wrong.contains("the passphrase is wrong"), "{wrong}");
}
