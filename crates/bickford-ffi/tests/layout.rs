//! Offsets that bindings rely on; one that moves needs another `BICKFORD_ABI_VERSION`.

use std::mem::offset_of;

use bickford_ffi::abi::*;

macro_rules! assert_layout {
    ($type:ty, $size:literal, { $($($field:ident).+ = $offset:literal),+ $(,)? }) => {
        assert_eq!(size_of::<$type>(), $size, stringify!($type));
        $(assert_eq!(offset_of!($type, $($field).+), $offset, stringify!($($field).+));)+
    };
}

#[test]
fn version_one_stays_as_it_is() {
    assert_eq!(BICKFORD_ABI_VERSION, 1);
    assert_layout!(bickford_request, 272, {
        unique = 0, operation = 8, uid = 12, gid = 16, pid = 20, node = 24, handle = 32,
        offset = 40, size = 48, node2 = 56, handle2 = 64, offset2 = 72, lock_owner = 80,
        present = 88, flags = 92, flags2 = 96, mode = 100, umask = 104, rdev = 108, new_uid = 112,
        new_gid = 116, accessed = 120, modified = 136, changed = 152, name = 168,
        name_length = 176, name2 = 184, name2_length = 192, data = 200, data_length = 208,
        lock_start = 216, lock_end = 224, lock_kind = 232, lock_pid = 236,
        path = 240, path_length = 248, path2 = 256, path2_length = 264,
    });
    assert_layout!(bickford_answer, 288, {
        node = 0, generation = 8, entry_valid = 16, attr_valid = 24, attr.ino = 32,
        attr.size = 40, attr.blocks = 48, attr.accessed = 56, attr.modified = 72,
        attr.changed = 88, attr.mode = 104, attr.links = 108, attr.uid = 112, attr.gid = 116,
        attr.rdev = 120, attr.block_size = 124, handle = 136, open_flags = 144, count = 152,
        born = 160, has_born = 176, lock_kind = 180, lock_start = 184, lock_end = 192,
        lock_pid = 200, statfs = 208, statfs.block_size = 248, statfs.name_max = 252,
        statfs.fragment_size = 256, data = 264, data_capacity = 272, data_length = 280,
    });
    assert_layout!(bickford_listed, 32, { offset = 0, ino = 8, mode = 16, reserved = 20, attr = 24 });
    assert_layout!(bickford_callbacks, 24, { user = 0, operations = 8, dispatch = 16 });
    assert_layout!(bickford_layer, 56, {
        user = 0, pre_operations = 8, call_operations = 16, post_operations = 24,
        metadata_only = 32, pre = 40, post = 48,
    });
    assert_layout!(bickford_config, 32, {
        abi_version = 0, workers = 4, max_write = 8, max_readahead = 12, want = 16, refuse = 24,
    });
}
