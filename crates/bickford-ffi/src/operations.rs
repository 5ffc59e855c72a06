//! The one list of operations that cross the interface.

/// Calls the macro `$apply` with a row per operation:
/// `method: Operation => Answer, NUMBER, what is answered where it is not wanted;`
macro_rules! for_each_operation {
    ($apply:ident) => {
        $apply! {
            lookup: Lookup<'_> => Entry, BICKFORD_OP_LOOKUP, Err(Errno::NOSYS);
            getattr: Getattr => Attributes, BICKFORD_OP_GETATTR, Err(Errno::NOSYS);
            setattr: Setattr => Attributes, BICKFORD_OP_SETATTR, Err(Errno::NOSYS);
            readlink: Readlink => Target, BICKFORD_OP_READLINK, Err(Errno::NOSYS);
            symlink: Symlink<'_> => Entry, BICKFORD_OP_SYMLINK, Err(Errno::NOSYS);
            mknod: Mknod<'_> => Entry, BICKFORD_OP_MKNOD, Err(Errno::NOSYS);
            mkdir: Mkdir<'_> => Entry, BICKFORD_OP_MKDIR, Err(Errno::NOSYS);
            unlink: Unlink<'_> => (), BICKFORD_OP_UNLINK, Err(Errno::NOSYS);
            rmdir: Rmdir<'_> => (), BICKFORD_OP_RMDIR, Err(Errno::NOSYS);
            rename: Rename<'_> => (), BICKFORD_OP_RENAME, Err(Errno::NOSYS);
            link: Link<'_> => Entry, BICKFORD_OP_LINK, Err(Errno::NOSYS);
            open: Open => Opened, BICKFORD_OP_OPEN, Ok(Opened::default());
            read: Read => Data, BICKFORD_OP_READ, Err(Errno::NOSYS);
            write: Write<'_> => Written, BICKFORD_OP_WRITE, Err(Errno::NOSYS);
            statfs: Statfs => StatfsAnswer, BICKFORD_OP_STATFS, Ok(StatfsAnswer::default());
            release: Release => (), BICKFORD_OP_RELEASE, Ok(());
            fsync: Fsync => (), BICKFORD_OP_FSYNC, Err(Errno::NOSYS);
            setxattr: Setxattr<'_> => (), BICKFORD_OP_SETXATTR, Err(Errno::NOSYS);
            getxattr: Getxattr<'_> => XattrAnswer, BICKFORD_OP_GETXATTR, Err(Errno::NOSYS);
            listxattr: Listxattr => XattrAnswer, BICKFORD_OP_LISTXATTR, Err(Errno::NOSYS);
            removexattr: Removexattr<'_> => (), BICKFORD_OP_REMOVEXATTR, Err(Errno::NOSYS);
            flush: Flush => (), BICKFORD_OP_FLUSH, Err(Errno::NOSYS);
            opendir: Opendir => Opened, BICKFORD_OP_OPENDIR, Ok(Opened::default());
            readdir: Readdir => Directory, BICKFORD_OP_READDIR, Err(Errno::NOSYS);
            readdirplus: Readdirplus => Directory, BICKFORD_OP_READDIRPLUS, Err(Errno::NOSYS);
            releasedir: Releasedir => (), BICKFORD_OP_RELEASEDIR, Ok(());
            fsyncdir: Fsyncdir => (), BICKFORD_OP_FSYNCDIR, Err(Errno::NOSYS);
            getlk: Getlk => Lock, BICKFORD_OP_GETLK, Err(Errno::NOSYS);
            setlk: Setlk => (), BICKFORD_OP_SETLK, Err(Errno::NOSYS);
            access: Access => (), BICKFORD_OP_ACCESS, Err(Errno::NOSYS);
            create: Create<'_> => Created, BICKFORD_OP_CREATE, Err(Errno::NOSYS);
            bmap: Bmap => Block, BICKFORD_OP_BMAP, Err(Errno::NOSYS);
            ioctl: Ioctl<'_> => IoctlAnswer, BICKFORD_OP_IOCTL, Err(Errno::NOTTY);
            poll: Poll => PollAnswer, BICKFORD_OP_POLL, Err(Errno::NOSYS);
            fallocate: Fallocate => (), BICKFORD_OP_FALLOCATE, Err(Errno::NOSYS);
            lseek: Lseek => Offset, BICKFORD_OP_LSEEK, Err(Errno::NOSYS);
            copy_file_range: CopyFileRange => Copied, BICKFORD_OP_COPY_FILE_RANGE, Err(Errno::NOSYS);
            syncfs: Syncfs => (), BICKFORD_OP_SYNCFS, Err(Errno::NOSYS);
            tmpfile: Tmpfile => Created, BICKFORD_OP_TMPFILE, Err(Errno::NOSYS);
            statx: Statx => StatxAnswer, BICKFORD_OP_STATX, Err(Errno::NOSYS);
        }
    };
}

pub(crate) use for_each_operation;

/// The bit of an operation in a mask.
pub(crate) const fn bit(operation: u32) -> u64 {
    1 << operation
}
