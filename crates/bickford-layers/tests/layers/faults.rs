//! `fault`: the right requests fail, the same ones each time, and what did not fail is said.

use bickford::abi::Opcode;

use super::below::*;

fn failures(spec: &str) -> Vec<bool> {
    let mut fixture = fixture(&[spec]);
    let reads = (0..300).map(|_| fixture.errno(Opcode::Read, 2, &read(1)) == libc::EIO);
    reads.collect()
}

#[test]
fn the_seed_alone_decides() {
    let spec = "fault:op=read,errno=EIO,probability=0.3,seed=5";
    let first = failures(spec);
    assert_eq!(failures(spec), first);
    let count = first.iter().filter(|failed| **failed).count();
    assert!((60..120).contains(&count), "{count} of 300");
    assert_ne!(failures(&spec.replace('5', "6")), first);
}

#[test]
fn after_and_count_bound_the_faults() {
    let failed = failures("fault:op=read,errno=EIO,after=10,count=5");
    let expected: Vec<_> = (0..300).map(|n| (10..15).contains(&n)).collect();
    assert_eq!(failed, expected);
}

#[test]
fn only_chosen_operations_fail() {
    let mut fixture = fixture(&["fault:op=read|mkdir,errno=ENOSPC"]);
    assert_eq!(fixture.errno(Opcode::Read, 2, &read(1)), libc::ENOSPC);
    assert_eq!(fixture.errno(Opcode::Mkdir, 1, &mkdir(b"x")), libc::ENOSPC);
    assert_eq!(fixture.errno(Opcode::Open, 2, &open(0)), 0);
    let missing = fixture.errno(Opcode::Lookup, 1, b"x\0");
    assert_eq!(missing, libc::ENOENT, "the directory was not made");
    assert_eq!(
        fixture.summary.report(),
        "fault\n  ENOSPC instead of mkdir|read: 2 injected of 2 that matched\n"
    );
}

#[test]
fn a_fault_after_the_operation_leaves_it_done() {
    let mut fixture = fixture(&["fault:op=mkdir,errno=EIO,when=after"]);
    assert_eq!(fixture.errno(Opcode::Mkdir, 1, &mkdir(b"x")), libc::EIO);
    assert_eq!(fixture.errno(Opcode::Lookup, 1, b"x\0"), 0);
}

#[test]
fn paths_decide_where_they_are_known() {
    let mut fixture = fixture(&["fault:op=read|create,errno=EIO,path=/dir/**"]);
    let dir = fixture.node(Opcode::Mkdir, 1, &mkdir(b"dir"));
    assert_eq!(fixture.errno(Opcode::Create, dir, &create(b"x")), libc::EIO);
    let file = fixture.node(Opcode::Create, 1, &create(b"file"));
    assert_eq!(fixture.errno(Opcode::Read, file, &read(1)), 0);
    let listed = {
        fixture.call(Opcode::Readdirplus, dir, &read(4096));
        fixture.node(Opcode::Lookup, dir, b"listed\0")
    };
    assert_eq!(fixture.errno(Opcode::Read, listed, &read(1)), libc::EIO);
    let moved = rename(b"file", dir, b"moved", 0);
    assert_eq!(fixture.errno(Opcode::Rename2, 1, &moved), 0);
    assert_eq!(fixture.errno(Opcode::Read, file, &read(1)), libc::EIO);
    fixture.kernel.send(Opcode::Forget, file, &forget(1));
    assert_eq!(fixture.errno(Opcode::Read, file, &read(1)), 0);
    let report = fixture.summary.report();
    assert!(report.contains("3 injected of 3"), "{report}");
    assert!(report.contains("1 requests were let through"), "{report}");
}

#[test]
fn what_could_not_be_injected_is_said() {
    let mut fixture = fixture(&[
        "fault:op=write,errno=EIO",
        "fault:op=read,errno=EIO,after=10",
        "fault:op=open,errno=EIO,probability=0",
    ]);
    fixture.call(Opcode::Read, 2, &read(1));
    fixture.call(Opcode::Open, 2, &open(0));
    let report = fixture.summary.report();
    for line in [
        "no fault was injected: no request matched",
        "no fault was injected: only 1 requests matched, after=10",
        "no fault was injected: none of 1 was drawn",
    ] {
        assert!(report.contains(line), "{report}");
    }
}
