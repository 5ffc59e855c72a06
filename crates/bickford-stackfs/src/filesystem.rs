//! StackFS as the library's file system.

use bickford::abi::InitFlags;
use bickford::ops::{
    Access, Attributes, Copied, CopyFileRange, Create, Created, Data, Directory, Entry, Fallocate,
    Flush, Forget, Fsync, Fsyncdir, Getattr, Getlk, Getxattr, Ioctl, IoctlAnswer, Link, Listxattr,
    Lock, Lookup, Lseek, Mkdir, Mknod, Offset, Open, Opendir, Opened, Read, Readdir, Readdirplus,
    Readlink, Release, Releasedir, Removexattr, Rename, Rmdir, Setattr, Setlk, Setxattr, Statfs,
    StatfsAnswer, Statx, StatxAnswer, Symlink, Syncfs, Target, Tmpfile, Unlink, Write, Written,
    XattrAnswer,
};
use bickford::{Context, FileSystem, Negotiation, Reply};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::io_mode::{IoMode, settle};
use crate::ioctl::{protect_after_data, protects};
use crate::{Inner, Settings, StackFs};

/// What every mount wants. The kernel leaves umasks and the clearing of set-id bits to us, which the
/// lower file system does.
const WANTED: InitFlags = InitFlags::DONT_MASK
    .union(InitFlags::HANDLE_KILLPRIV_V2)
    .union(InitFlags::SETXATTR_EXT)
    .union(InitFlags::HAS_IOCTL_DIR)
    .union(InitFlags::PARALLEL_DIROPS)
    .union(InitFlags::DO_READDIRPLUS)
    .union(InitFlags::READDIRPLUS_AUTO)
    .union(InitFlags::AUTO_INVAL_DATA)
    .union(InitFlags::ASYNC_READ);
const LOCKS: InitFlags = InitFlags::POSIX_LOCKS.union(InitFlags::FLOCK_LOCKS);

/// What the settings ask for and the session does not begin without.
fn want_what_is_asked_for(settings: &Settings, negotiation: &mut Negotiation) -> Result<(), Errno> {
    if settings.permission_checks && !negotiation.want(InitFlags::POSIX_ACL) {
        tracing::error!("StackFS: this kernel does not check ACLs for FUSE; 4.9 is needed");
        return Err(Errno::PROTO);
    }
    if settings.allow_idmap && !negotiation.allow_idmap() {
        tracing::error!(
            "StackFS: this kernel allows no id-mapped mounts of FUSE; Linux 6.12 is needed"
        );
        return Err(Errno::PROTO);
    }
    if settings.nfs_export && !negotiation.want(InitFlags::EXPORT_SUPPORT) {
        tracing::error!(
            "StackFS: serve for NFS: a layer has seen no name of what comes by a file handle; leave nfs_export \
             or the layer out"
        );
        return Err(Errno::PROTO);
    }
    Ok(())
}

impl FileSystem for StackFs {
    fn is_prompt(&self) -> bool {
        true
    }

    fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        negotiation.want(WANTED);
        // Where a symbolic link leads is computed, too, and told to each caller alone.
        let beneath = &self.inner.beneath;
        if !beneath.any().computed {
            negotiation.want(InitFlags::CACHE_SYMLINKS);
        }
        want_what_is_asked_for(&self.inner.settings, negotiation)?;
        // It would have us truncate a file that is being executed before the kernel refuses that.
        negotiation.refuse(InitFlags::ATOMIC_O_TRUNC);
        self.inner.nodes.set_kernel(negotiation.kernel_minor());
        let in_force = settle(
            &self.inner.settings,
            self.inner.identity.powers(),
            self.inner.beneath,
            negotiation,
        )?;
        tracing::info!(
            io = in_force.io.name(),
            write_back = in_force.write_back,
            inodes = self.identity(),
            exclusive = self.inner.settings.exclusive,
            opendir = if in_force.opens_directories {
                "off"
            } else {
                "on"
            },
            "StackFS begins"
        );
        self.inner.settle_watch(negotiation.kernel_minor());
        if in_force.io == IoMode::Cached {
            self.inner.nodes.without_handles(
                self.inner.readers.capacity() + self.inner.on_demand_writers.capacity(),
            );
        }
        if self.inner.in_force.set(in_force).is_err() {
            tracing::error!("StackFS: one file system serves one session");
            return Err(Errno::BUSY);
        }
        if self.inner.is_told_of_data() {
            negotiation.refuse(InitFlags::AUTO_INVAL_DATA);
        }
        // Where others use the lower directory, locks must be seen there too. They need handles.
        if !self.inner.settings.exclusive && in_force.io != IoMode::Cached {
            negotiation.want(LOCKS);
        }
        if !self.inner.settings.splice {
            negotiation.refuse(InitFlags::SPLICE_READ);
        }
        negotiation.set_splice_writes(self.inner.settings.splice);
        negotiation.set_max_write(self.inner.settings.max_request);
        negotiation.set_read_ahead(self.inner.settings.read_ahead);
        negotiation.set_time_granularity(1);
        Ok(())
    }

    fn destroy(&self) {
        self.inner.waiting.end();
        self.inner.leased.end();
    }

    fn forget(&self, forgets: &[Forget]) {
        for forget in forgets {
            let node = forget.node.0;
            self.inner.readers.remove(node);
            self.inner.on_demand_writers.remove(node);
            self.inner.backings.forget(node);
            self.inner.mapped.forget(node);
            self.inner.unfinished.forget(node);
            self.inner.nodes.forget(node, forget.count);
        }
    }

    fn lookup(&self, cx: &Context<'_>, op: Lookup<'_>, reply: Reply<Entry>) {
        reply.complete(self.inner.do_lookup(&op));
        self.inner.prune(cx);
    }

    fn getattr(&self, _: &Context<'_>, op: Getattr, reply: Reply<Attributes>) {
        reply.complete(self.inner.do_getattr(&op));
    }

    fn setattr(&self, cx: &Context<'_>, op: Setattr, reply: Reply<Attributes>) {
        self.patiently(cx, reply, move |inner, cx, _| inner.do_setattr(cx, &op));
    }

    fn access(&self, _: &Context<'_>, op: Access, reply: Reply<()>) {
        reply.complete(self.inner.do_access(&op));
    }

    fn statx(&self, _: &Context<'_>, op: Statx, reply: Reply<StatxAnswer>) {
        reply.complete(self.inner.do_statx(&op));
    }

    fn statfs(&self, _: &Context<'_>, op: Statfs, reply: Reply<StatfsAnswer>) {
        reply.complete(self.inner.do_statfs(&op));
    }

    fn readlink(&self, cx: &Context<'_>, op: Readlink, reply: Reply<Target>) {
        reply.complete(self.inner.do_readlink(cx, op.node));
    }

    fn symlink(&self, cx: &Context<'_>, op: Symlink<'_>, reply: Reply<Entry>) {
        let done = self.inner.do_symlink(cx, &op);
        self.inner.names_changed(op.parent);
        reply.complete(done);
    }

    fn mknod(&self, cx: &Context<'_>, op: Mknod<'_>, reply: Reply<Entry>) {
        let done = self.inner.do_mknod(cx, &op);
        self.inner.names_changed(op.parent);
        reply.complete(done);
    }

    fn mkdir(&self, cx: &Context<'_>, op: Mkdir<'_>, reply: Reply<Entry>) {
        let done = self.inner.do_mkdir(cx, &op);
        self.inner.names_changed(op.parent);
        reply.complete(done);
    }

    fn unlink(&self, cx: &Context<'_>, op: Unlink<'_>, reply: Reply<()>) {
        let done = self.inner.do_unlink(cx, &op);
        self.inner.names_changed(op.parent);
        reply.complete(done);
    }

    fn rmdir(&self, cx: &Context<'_>, op: Rmdir<'_>, reply: Reply<()>) {
        let done = self.inner.do_rmdir(cx, &op);
        self.inner.names_changed(op.parent);
        reply.complete(done);
    }

    fn rename(&self, cx: &Context<'_>, op: Rename<'_>, reply: Reply<()>) {
        let renamed = self.inner.do_rename(cx, &op);
        self.inner.names_changed(op.parent);
        if op.new_parent != op.parent {
            self.inner.names_changed(op.new_parent);
        }
        reply.complete(renamed);
    }

    fn link(&self, _: &Context<'_>, op: Link<'_>, reply: Reply<Entry>) {
        let linked = self.inner.do_link(&op);
        self.inner.names_changed(op.new_parent);
        reply.complete(linked);
    }

    fn create(&self, cx: &Context<'_>, op: Create<'_>, reply: Reply<Created>) {
        let created = self
            .inner
            .do_create(cx, &op, &|file| reply.open_backing(file));
        self.inner.names_changed(op.parent);
        reply.complete(created);
    }

    fn tmpfile(&self, cx: &Context<'_>, op: Tmpfile, reply: Reply<Created>) {
        let created = self
            .inner
            .do_tmpfile(cx, &op, &|file| reply.open_backing(file));
        reply.complete(created);
    }

    fn open(&self, cx: &Context<'_>, op: Open, reply: Reply<Opened>) {
        if OFlags::from_bits_retain(op.flags).contains(OFlags::NONBLOCK) {
            let opened = self
                .inner
                .do_open(cx, &op, &|file| reply.open_backing(file));
            return reply.complete(opened);
        }
        self.patiently(cx, reply, move |inner, cx, reply| {
            inner.do_open(cx, &op, &|file| reply.open_backing(file))
        });
    }

    fn read(&self, cx: &Context<'_>, op: Read, reply: Reply<Data>) {
        let patience = move |inner: &Inner| inner.patience(&op);
        self.patiently_for(patience, cx, reply, move |inner, cx, _| {
            inner.do_read(cx, &op)
        });
    }

    fn write(&self, cx: &Context<'_>, op: Write<'_>, reply: Reply<Written>) {
        reply.complete(self.inner.do_write(cx, &op));
    }

    fn flush(&self, _: &Context<'_>, op: Flush, reply: Reply<()>) {
        reply.complete(self.inner.do_flush(&op));
    }

    fn release(&self, cx: &Context<'_>, op: Release, reply: Reply<()>) {
        reply.complete(self.inner.do_release(cx, &op));
    }

    fn fsync(&self, _: &Context<'_>, op: Fsync, reply: Reply<()>) {
        let done = self.inner.sync(op.node, op.handle, op.data_only);
        reply.complete(done);
    }

    fn fallocate(&self, cx: &Context<'_>, op: Fallocate, reply: Reply<()>) {
        reply.complete(self.inner.do_fallocate(cx, &op));
    }

    fn lseek(&self, cx: &Context<'_>, op: Lseek, reply: Reply<Offset>) {
        self.inner.do_lseek(cx, &op, reply);
    }

    fn copy_file_range(&self, cx: &Context<'_>, op: CopyFileRange, reply: Reply<Copied>) {
        reply.complete(self.inner.do_copy(cx, &op));
    }

    fn ioctl(&self, cx: &Context<'_>, op: Ioctl<'_>, reply: Reply<IoctlAnswer>) {
        if protects(&op) && self.inner.may_be_dirty(op.node) {
            return protect_after_data(&self.inner, cx, &op, reply);
        }
        reply.complete(self.inner.do_ioctl(cx, &op));
    }

    fn getlk(&self, _: &Context<'_>, op: Getlk, reply: Reply<Lock>) {
        reply.complete(self.inner.do_getlk(&op));
    }

    fn setlk(&self, cx: &Context<'_>, op: Setlk, reply: Reply<()>) {
        self.inner.do_setlk(cx, &op, reply);
    }

    fn getxattr(&self, cx: &Context<'_>, op: Getxattr<'_>, reply: Reply<XattrAnswer>) {
        reply.complete(self.inner.do_getxattr(cx, &op));
    }

    fn setxattr(&self, cx: &Context<'_>, op: Setxattr<'_>, reply: Reply<()>) {
        self.inner.do_setxattr(cx, &op, reply);
    }

    fn listxattr(&self, cx: &Context<'_>, op: Listxattr, reply: Reply<XattrAnswer>) {
        reply.complete(self.inner.do_listxattr(cx, &op));
    }

    fn removexattr(&self, cx: &Context<'_>, op: Removexattr<'_>, reply: Reply<()>) {
        reply.complete(self.inner.do_removexattr(cx, &op));
    }

    fn opendir(&self, cx: &Context<'_>, op: Opendir, reply: Reply<Opened>) {
        reply.complete(self.inner.do_opendir(cx, &op));
    }

    fn readdir(&self, cx: &Context<'_>, op: Readdir, reply: Reply<Directory>) {
        let listing = Directory::new(op.size, false);
        reply.complete(
            self.inner
                .do_readdir(cx, (op.node, op.handle), op.offset, listing),
        );
    }

    fn readdirplus(&self, cx: &Context<'_>, op: Readdirplus, reply: Reply<Directory>) {
        let listing = Directory::new(op.size, true);
        reply.complete(
            self.inner
                .do_readdir(cx, (op.node, op.handle), op.offset, listing),
        );
    }

    fn releasedir(&self, cx: &Context<'_>, op: Releasedir, reply: Reply<()>) {
        reply.complete(self.inner.do_releasedir(cx, &op));
    }

    fn fsyncdir(&self, _: &Context<'_>, op: Fsyncdir, reply: Reply<()>) {
        reply.complete(self.inner.do_fsyncdir(&op));
    }

    fn syncfs(&self, _: &Context<'_>, op: Syncfs, reply: Reply<()>) {
        let root = self.inner.nodes.open(op.node.0, OFlags::RDONLY);
        reply.complete(root.and_then(|root| rustix::fs::syncfs(&root)));
    }
}
