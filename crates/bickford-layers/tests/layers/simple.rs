//! `readonly` and `stats`.

use bickford::abi::{AccessIn, IoctlIn, Opcode, OutHeader};
use zerocopy::IntoBytes;

use super::below::*;

fn access(mask: u32) -> Vec<u8> {
    AccessIn { mask, padding: 0 }.as_bytes().to_vec()
}

fn ioctl(cmd: u32) -> Vec<u8> {
    let input = IoctlIn {
        cmd,
        ..IoctlIn::default()
    };
    input.as_bytes().to_vec()
}

#[test]
fn readonly_refuses_changes_and_nothing_else() {
    let mut fixture = fixture(&["readonly"]);
    const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
    const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
    const TCGETS: u32 = 0x5401;
    for (opcode, body, errno) in [
        (Opcode::Mkdir, mkdir(b"dir"), libc::EROFS),
        (Opcode::Create, create(b"file"), libc::EROFS),
        (Opcode::Unlink, b"file\0".to_vec(), libc::EROFS),
        (Opcode::Rename2, rename(b"a", 1, b"b", 0), libc::EROFS),
        (Opcode::Setattr, setattr(), libc::EROFS),
        (Opcode::Write, write(b"data"), libc::EROFS),
        (Opcode::Open, open(libc::O_WRONLY as u32), libc::EROFS),
        (Opcode::Open, open(libc::O_RDWR as u32), libc::EROFS),
        (Opcode::Open, open(libc::O_TRUNC as u32), libc::EROFS),
        (Opcode::Access, access(2), libc::EROFS),
        (Opcode::Ioctl, ioctl(FS_IOC_SETFLAGS), libc::EROFS),
        (Opcode::Ioctl, ioctl(FS_IOC_GETFLAGS), libc::ENOTTY),
        (Opcode::Ioctl, ioctl(TCGETS), libc::ENOTTY),
        (Opcode::Access, access(4), libc::ENOSYS),
        (Opcode::Open, open(libc::O_RDONLY as u32), 0),
        (Opcode::Read, read(10), 0),
        (Opcode::Lookup, b"file\0".to_vec(), libc::ENOENT),
    ] {
        assert_eq!(fixture.errno(opcode, 1, &body), errno, "{opcode:?}");
    }
}

#[test]
fn stats_count_what_was_answered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stats.json");
    let spec = format!("stats:format=json,file={}", path.display());
    std::fs::write(
        &path,
        "figures of the session before, which were longer than those of this one\n".repeat(99),
    )
    .unwrap();
    let mut fixture = fixture(&[&spec]);
    let before = std::fs::read_to_string(&path).unwrap();
    assert!(
        before.starts_with("figures"),
        "they stay until there are new ones"
    );
    for _ in 0..3 {
        let answer = fixture.call(Opcode::Read, 2, &read(100));
        assert_eq!(answer.length(), size_of::<OutHeader>() + 100);
    }
    // Only what there is of a range that is read counts.
    fixture.call(Opcode::Read, LOWER_FILE.0, &read(100));
    fixture.errno(Opcode::Lookup, 1, b"missing\0");
    fixture.call(Opcode::Write, 2, &write(b"12345"));
    let report = fixture.summary.report();
    assert!(report.starts_with("stats\n"), "{report}");
    fixture.kernel.call(Opcode::Destroy, 0, &[]).unwrap();
    let json = std::fs::read_to_string(path).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["read"]["count"], 4);
    assert_eq!(json["read"]["bytes"], 305);
    assert_eq!(json["read"]["errors"], 0);
    assert_eq!(json["lookup"]["errors"], 1);
    assert_eq!(json["write"]["bytes"], 5);
    assert!(json.get("open").is_none());
    let p99 = json["read"]["p99_ns"].as_u64().unwrap();
    assert!(p99 > 0 && p99 <= json["read"]["max_ns"].as_u64().unwrap());
}
