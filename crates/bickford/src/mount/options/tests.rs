use super::*;
use proptest::prelude::*;

#[test]
fn default_is_nosuid_nodev() {
    let options = MountOptions::parse("").unwrap();
    assert_eq!(options, MountOptions::new());
    assert_eq!(options.flags, GenericFlags::NO_SUID | GenericFlags::NO_DEV);
    assert_eq!(options.to_fusermount(), "fsname=/dev/fuse");
}

#[test]
fn later_options_override_earlier_ones() {
    let options = MountOptions::parse("ro,noatime,rw,strictatime,suid,dev,noexec").unwrap();
    assert_eq!(
        options.flags,
        GenericFlags::STRICT_ATIME | GenericFlags::NO_EXEC
    );
    assert_eq!(
        options.to_fusermount(),
        "suid,dev,noexec,strictatime,fsname=/dev/fuse"
    );
}

#[test]
fn escaped_commas_stay_in_the_value() {
    let options = MountOptions::parse(r"fsname=a\,b\\c,subtype=x").unwrap();
    assert_eq!(options.fsname.as_deref(), Some(r"a,b\c"));
    assert_eq!(options.source(), r"a,b\c");
    assert_eq!(options.to_fusermount(), r"subtype=x,fsname=a\,b\\c");
}

#[test]
fn quoted_contexts_keep_their_commas() {
    let text = r#"context="system_u:object_r:tmp_t:s0:c1,c2",ro"#;
    let options = MountOptions::parse(text).unwrap();
    let expected = (
        "context".to_owned(),
        "system_u:object_r:tmp_t:s0:c1,c2".to_owned(),
    );
    assert_eq!(options.contexts, [expected]);
    assert!(options.flags.contains(GenericFlags::READ_ONLY));
}

#[test]
fn unknown_option_names_itself_and_the_nearest() {
    let error = MountOptions::parse("ro,alow_other").unwrap_err();
    let message = error.to_string();
    assert_eq!(
        message,
        "mount option 'alow_other' is not known; did you mean 'allow_other'?"
    );
    let message = MountOptions::parse("zzzzzzzz=1").unwrap_err().to_string();
    assert!(message.contains("'zzzzzzzz'"), "{message}");
    assert!(
        message.contains("mount.fuse3(8)") && !message.contains("subtype"),
        "{message}"
    );
}

#[test]
fn values_where_none_belongs_and_none_where_one_does() {
    let message = MountOptions::parse("ro=1").unwrap_err().to_string();
    assert!(
        message.starts_with("mount option 'ro' takes no value"),
        "{message}"
    );
    let message = MountOptions::parse("subtype").unwrap_err().to_string();
    assert!(
        message.starts_with("mount option 'subtype' needs a value"),
        "{message}"
    );
    let message = MountOptions::parse("max_read=lots")
        .unwrap_err()
        .to_string();
    assert!(
        message.starts_with("mount option 'max_read=lots'"),
        "{message}"
    );
    let message = MountOptions::new()
        .fsname("a\0b")
        .check()
        .unwrap_err()
        .to_string();
    assert!(message.contains("NUL"), "{message}");
}

#[test]
fn options_of_fstab_are_left_to_their_readers() {
    let text = "defaults,noauto,_netdev,user=joe,x-systemd.automount,x-gvfs-show,nofail,\
        silent,loud,lazytime,nolazytime,nomand,noiversion,nonempty";
    assert_eq!(MountOptions::parse(text).unwrap(), MountOptions::new());
}

#[test]
fn what_fuse_has_not_is_refused_by_name() {
    for option in ["mand", "iversion"] {
        let message = MountOptions::parse(option).unwrap_err().to_string();
        assert!(message.contains(&format!("'{option}': ")), "{message}");
    }
}

#[test]
fn a_block_device_is_named_and_has_the_blocks() {
    let options = MountOptions::parse("blkdev,blksize=4096,fsname=/dev/x").unwrap();
    options.check().unwrap();
    assert!(options.block_device && options.block_size == Some(4096));
    assert_eq!(options.to_fusermount(), "blkdev,blksize=4096,fsname=/dev/x");
    for (text, named) in [("blkdev", "fsname=DEVICE"), ("blksize=512", "give blkdev")] {
        let message = MountOptions::parse(text).unwrap().check().unwrap_err();
        assert!(message.to_string().contains(named), "{message}");
    }
    assert!(MountOptions::parse("blkdev,blksize=4k").is_err());
}

#[test]
fn the_root_is_a_directory_or_a_file() {
    let root = |text| MountOptions::parse(text).map(|options| options.root);
    assert_eq!(root(""), Ok(RootKind::Directory));
    assert_eq!(root("root_kind=file"), Ok(RootKind::RegularFile));
    assert_eq!(
        root("root_kind=file,root_kind=directory"),
        Ok(RootKind::Directory)
    );
    let message = root("root_kind=fifo").unwrap_err().to_string();
    assert!(message.contains("'root_kind=fifo'"), "{message}");
}

#[test]
fn allow_root_lets_the_kernel_admit_all_and_the_library_choose() {
    let options = MountOptions::parse("allow_root").unwrap();
    assert!(options.kernel_allows_other());
    assert_eq!(options.to_fusermount(), "allow_other,fsname=/dev/fuse");
    assert_eq!(options.access, AccessPolicy::OwnerAndRoot);
    let error = MountOptions::parse("allow_root,allow_other").unwrap_err();
    assert_eq!(
        error,
        OptionError::Conflict {
            first: "allow_root",
            second: "allow_other"
        }
    );
}

proptest! {
    #[test]
    fn what_is_escaped_comes_back(name in "[^\0\"]{1,40}") {
        let text = format!("fsname={},ro", escape_option(&name));
        let options = MountOptions::parse(&text).unwrap();
        prop_assert_eq!(options.fsname.as_deref(), Some(name.as_str()));
        prop_assert!(options.flags.contains(GenericFlags::READ_ONLY));
    }

    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let _ = MountOptions::parse(&text);
    }
}
