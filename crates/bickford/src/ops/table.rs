//! The one list of operations from which traits, dispatch and layers derive.

/// Calls the macro `$apply` with a row per operation that is answered:
/// `method: Operation => Answer, default, [opcodes], "doc";`
macro_rules! for_each_operation {
    ($apply:ident $($extra:tt)*) => {
        $apply! { $($extra)*
            lookup: Lookup<'_> => Entry, Err(Errno::NOSYS), [Lookup], "Finds a name in a directory.";
            getattr: Getattr => Attributes, Err(Errno::NOSYS), [Getattr], "Asks for attributes.";
            setattr: Setattr => Attributes, Err(Errno::NOSYS), [Setattr], "Changes attributes.";
            readlink: Readlink => Target, Err(Errno::NOSYS), [Readlink], "Asks what a symbolic link says.";
            symlink: Symlink<'_> => Entry, Err(Errno::NOSYS), [Symlink], "Makes a symbolic link.";
            mknod: Mknod<'_> => Entry, Err(Errno::NOSYS), [Mknod], "Makes a file or device node.";
            mkdir: Mkdir<'_> => Entry, Err(Errno::NOSYS), [Mkdir], "Makes a directory.";
            unlink: Unlink<'_> => (), Err(Errno::NOSYS), [Unlink], "Removes a name.";
            rmdir: Rmdir<'_> => (), Err(Errno::NOSYS), [Rmdir], "Removes an empty directory.";
            rename: Rename<'_> => (), Err(Errno::NOSYS), [Rename, Rename2], "Renames or exchanges. Where what it moves has another time of change then, `Context::has_changed` is to be told.";
            link: Link<'_> => Entry, Err(Errno::NOSYS), [Link], "Gives an inode another name.";
            open: Open => Opened, Ok(Opened::default()), [Open], "Opens a file. By default: with handle zero.";
            read: Read => Data, Err(Errno::NOSYS), [Read], "Reads from an open file.";
            write: Write<'_> => Written, Err(Errno::NOSYS), [Write], "Writes to an open file.";
            statfs: Statfs => StatfsAnswer, Ok(StatfsAnswer::default()), [Statfs], "Asks for size and use. By default: nothing is known, names may have 255 bytes.";
            release: Release => (), Ok(()), [Release], "An open file ends, and with it the locks that the file system keeps of it: its flock(2) lock (`FLOCK_LOCKS`), and what was locked through its handle and not ended by FLUSH (`F_OFD_SETLK`), of which Linux says nothing here.";
            fsync: Fsync => (), Err(Errno::NOSYS), [Fsync], "Puts a file on stable storage.";
            setxattr: Setxattr<'_> => (), Err(Errno::NOSYS), [Setxattr], "Sets an extended attribute.";
            getxattr: Getxattr<'_> => XattrAnswer, Err(Errno::NOSYS), [Getxattr], "Asks for an extended attribute.";
            listxattr: Listxattr => XattrAnswer, Err(Errno::NOSYS), [Listxattr], "Asks for the names of extended attributes.";
            removexattr: Removexattr<'_> => (), Err(Errno::NOSYS), [Removexattr], "Removes an extended attribute.";
            flush: Flush => (), Err(Errno::NOSYS), [Flush], "A descriptor of an open file was closed. Record locks that the file system keeps (`POSIX_LOCKS`) end here: Linux leaves that to it, and does not come again after ENOSYS, the default.";
            opendir: Opendir => Opened, Ok(Opened::default()), [Opendir], "Opens a directory. By default: with handle zero.";
            readdir: Readdir => Directory, Err(Errno::NOSYS), [Readdir], "Lists names.";
            readdirplus: Readdirplus => Directory, Err(Errno::NOSYS), [Readdirplus], "Lists names with entries. Only asked where it was negotiated.";
            releasedir: Releasedir => (), Ok(()), [Releasedir], "An open directory ends.";
            fsyncdir: Fsyncdir => (), Err(Errno::NOSYS), [Fsyncdir], "Puts a directory on stable storage.";
            getlk: Getlk => Lock, Err(Errno::NOSYS), [Getlk], "Asks for a lock in the way.";
            setlk: Setlk => (), Err(Errno::NOSYS), [Setlk, Setlkw], "Takes or gives up a lock.";
            access: Access => (), Err(Errno::NOSYS), [Access], "Asks whether the caller may use an inode so.";
            create: Create<'_> => Created, Err(Errno::NOSYS), [Create], "Makes a file and opens it. By default the kernel uses mknod and open.";
            bmap: Bmap => Block, Err(Errno::NOSYS), [Bmap], "Asks where a block lies.";
            ioctl: Ioctl<'_> => IoctlAnswer, Err(Errno::NOTTY), [Ioctl], "A device-specific command. By default: ENOTTY.";
            poll: Poll => PollAnswer, Err(Errno::NOSYS), [Poll], "Asks for what a file is ready for. By default the kernel takes it to be always ready.";
            fallocate: Fallocate => (), Err(Errno::NOSYS), [Fallocate], "Allocates or frees parts of a file.";
            lseek: Lseek => Offset, Err(Errno::NOSYS), [Lseek], "Finds data and holes. By default the kernel takes a file to be all data.";
            copy_file_range: CopyFileRange => Copied, Err(Errno::NOSYS), [CopyFileRange, CopyFileRange64], "Copies within the file system. By default the kernel reads and writes.";
            syncfs: Syncfs => (), Err(Errno::NOSYS), [Syncfs], "Puts everything on stable storage.";
            tmpfile: Tmpfile => Created, Err(Errno::NOSYS), [Tmpfile], "Makes an unnamed file and opens it.";
            statx: Statx => StatxAnswer, Err(Errno::NOSYS), [Statx], "Asks for attributes with the time of birth. By default the kernel uses getattr.";
        }
    };
}

pub(crate) use for_each_operation;
