//! Every structure of the crate and its fields: what the layout test compares.

use std::mem::offset_of;

use bickford_abi::*;

/// A structure: the minor version whose header has all of it, the kernel's name, its size, and
/// the name, offset and size of each field.
pub(crate) struct Row {
    pub(crate) since: u32,
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) fields: Vec<(&'static str, usize, usize)>,
}

/// Bytes of the field that a function picks.
fn field_size<S, F>(_pick: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! rows {
    ($($type:ident $name:literal $since:literal: $($field:ident)*;)*) => {
        /// Every structure.
        pub(crate) fn structures() -> Vec<Row> {
            vec![$(Row {
                since: $since,
                name: $name,
                size: size_of::<$type>(),
                fields: vec![$((
                    stringify!($field),
                    offset_of!($type, $field),
                    field_size(|structure: &$type| &structure.$field),
                )),*],
            }),*]
        }
    };
}

rows! {
    InHeader "fuse_in_header" 0: len opcode unique nodeid uid gid pid total_extlen padding;
    OutHeader "fuse_out_header" 0: len error unique;
    InitIn "fuse_init_in" 36: major minor max_readahead flags flags2 unused;
    InitOut "fuse_init_out" 43: major minor max_readahead flags max_background
        congestion_threshold max_write time_gran max_pages map_alignment flags2 max_stack_depth
        request_timeout unused;
    CuseInitIn "cuse_init_in" 12: major minor unused flags;
    CuseInitOut "cuse_init_out" 12: major minor unused flags max_read max_write dev_major
        dev_minor spare;
    Attr "fuse_attr" 9: ino size blocks atime mtime ctime atimensec mtimensec ctimensec mode
        nlink uid gid rdev blksize flags;
    AttrOut "fuse_attr_out" 9: attr_valid attr_valid_nsec dummy attr;
    GetattrIn "fuse_getattr_in" 9: getattr_flags dummy fh;
    SetattrIn "fuse_setattr_in" 23: valid padding fh size lock_owner atime mtime ctime
        atimensec mtimensec ctimensec mode unused4 uid gid unused5;
    SxTime "fuse_sx_time" 39: tv_sec tv_nsec __reserved;
    Statx "fuse_statx" 39: mask blksize attributes nlink uid gid mode __spare0 ino size blocks
        attributes_mask atime btime ctime mtime rdev_major rdev_minor dev_major dev_minor
        __spare2;
    StatxIn "fuse_statx_in" 39: getattr_flags reserved fh sx_flags sx_mask;
    StatxOut "fuse_statx_out" 39: attr_valid attr_valid_nsec flags spare stat;
    Kstatfs "fuse_kstatfs" 4: blocks bfree bavail files ffree bsize namelen frsize padding
        spare;
    StatfsOut "fuse_statfs_out" 4: st;
    AccessIn "fuse_access_in" 3: mask padding;
    EntryOut "fuse_entry_out" 9: nodeid generation entry_valid attr_valid entry_valid_nsec
        attr_valid_nsec attr;
    ForgetIn "fuse_forget_in" 0: nlookup;
    ForgetOne "fuse_forget_one" 16: nodeid nlookup;
    BatchForgetIn "fuse_batch_forget_in" 16: count dummy;
    MknodIn "fuse_mknod_in" 12: mode rdev umask padding;
    MkdirIn "fuse_mkdir_in" 12: mode umask;
    RenameIn "fuse_rename_in" 0: newdir;
    Rename2In "fuse_rename2_in" 23: newdir flags padding;
    LinkIn "fuse_link_in" 0: oldnodeid;
    OpenIn "fuse_open_in" 33: flags open_flags;
    CreateIn "fuse_create_in" 33: flags mode umask open_flags;
    OpenOut "fuse_open_out" 40: fh open_flags backing_id;
    ReadIn "fuse_read_in" 9: fh offset size read_flags lock_owner flags padding;
    WriteIn "fuse_write_in" 9: fh offset size write_flags lock_owner flags padding;
    WriteOut "fuse_write_out" 0: size padding;
    ReleaseIn "fuse_release_in" 8: fh flags release_flags lock_owner;
    FlushIn "fuse_flush_in" 0: fh unused padding lock_owner;
    FsyncIn "fuse_fsync_in" 0: fh fsync_flags padding;
    SyncfsIn "fuse_syncfs_in" 34: padding;
    BmapIn "fuse_bmap_in" 8: block blocksize padding;
    BmapOut "fuse_bmap_out" 8: block;
    FallocateIn "fuse_fallocate_in" 19: fh offset length mode padding;
    LseekIn "fuse_lseek_in" 24: fh offset whence padding;
    LseekOut "fuse_lseek_out" 24: offset;
    CopyFileRangeIn "fuse_copy_file_range_in" 28: fh_in off_in nodeid_out fh_out off_out len
        flags;
    CopyFileRangeOut "fuse_copy_file_range_out" 45: bytes_copied;
    SetupmappingIn "fuse_setupmapping_in" 31: fh foffset len flags moffset;
    RemovemappingIn "fuse_removemapping_in" 31: count;
    RemovemappingOne "fuse_removemapping_one" 31: moffset len;
    Dirent "fuse_dirent" 0: ino off namelen r#type;
    Direntplus "fuse_direntplus" 21: entry_out dirent;
    SetxattrIn "fuse_setxattr_in" 33: size flags setxattr_flags padding;
    GetxattrIn "fuse_getxattr_in" 0: size padding;
    GetxattrOut "fuse_getxattr_out" 0: size padding;
    FileLock "fuse_file_lock" 0: start end r#type pid;
    LkIn "fuse_lk_in" 9: fh owner lk lk_flags padding;
    LkOut "fuse_lk_out" 0: lk;
    InterruptIn "fuse_interrupt_in" 7: unique;
    IoctlIn "fuse_ioctl_in" 11: fh flags cmd arg in_size out_size;
    IoctlIovec "fuse_ioctl_iovec" 16: base len;
    IoctlOut "fuse_ioctl_out" 11: result flags in_iovs out_iovs;
    PollIn "fuse_poll_in" 21: fh kh flags events;
    PollOut "fuse_poll_out" 11: revents padding;
    NotifyPollWakeupOut "fuse_notify_poll_wakeup_out" 11: kh;
    NotifyInvalInodeOut "fuse_notify_inval_inode_out" 12: ino off len;
    NotifyInvalEntryOut "fuse_notify_inval_entry_out" 12: parent namelen flags;
    NotifyDeleteOut "fuse_notify_delete_out" 18: parent child namelen padding;
    NotifyStoreOut "fuse_notify_store_out" 15: nodeid offset size padding;
    NotifyRetrieveOut "fuse_notify_retrieve_out" 15: notify_unique nodeid offset size padding;
    NotifyRetrieveIn "fuse_notify_retrieve_in" 15: dummy1 offset size dummy2 dummy3 dummy4;
    NotifyPruneOut "fuse_notify_prune_out" 45: count padding spare;
    UringEntInOut "fuse_uring_ent_in_out" 42: flags commit_id payload_sz padding reserved;
    UringReqHeader "fuse_uring_req_header" 42: in_out op_in ring_ent_in_out;
    UringCmdReq "fuse_uring_cmd_req" 42: flags commit_id qid padding;
    ExtHeader "fuse_ext_header" 38: size r#type;
    SecctxHeader "fuse_secctx_header" 36: size nr_secctx;
    Secctx "fuse_secctx" 36: size padding;
    SuppGroups "fuse_supp_groups" 39: nr_groups;
    BackingMap "fuse_backing_map" 40: fd flags padding;
}

/// Size and field offsets of what headers older than 7.45 lack, from the kernel's 7.45 header.
pub(crate) const STATED: &[(&str, usize, &[usize])] = &[
    (
        "fuse_init_out",
        64,
        &[0, 4, 8, 12, 16, 18, 20, 24, 28, 30, 32, 36, 40, 42],
    ),
    ("fuse_open_out", 16, &[0, 8, 12]),
    ("fuse_sx_time", 16, &[0, 8, 12]),
    (
        "fuse_statx",
        256,
        &[
            0, 4, 8, 16, 20, 24, 28, 30, 32, 40, 48, 56, 64, 80, 96, 112, 128, 132, 136, 140, 144,
        ],
    ),
    ("fuse_statx_in", 24, &[0, 4, 8, 16, 20]),
    ("fuse_statx_out", 288, &[0, 8, 12, 16, 32]),
    ("fuse_copy_file_range_out", 8, &[0]),
    ("fuse_notify_prune_out", 16, &[0, 4, 8]),
    ("fuse_uring_ent_in_out", 32, &[0, 8, 16, 20, 24]),
    ("fuse_uring_req_header", 288, &[0, 128, 256]),
    ("fuse_uring_cmd_req", 24, &[0, 8, 16, 18]),
    ("fuse_supp_groups", 4, &[0]),
    ("fuse_backing_map", 16, &[0, 4, 8]),
];
