/*
 * A directory passed through with libfuse's high-level interface (over paths), for comparison with one over Bickford's:
 * extended attributes and ACLs are served, the kernel checks permissions, and what is made is its caller's.
 *
 *   paths [-o best] SOURCE MOUNTPOINT
 *
 * Without `best` it is what a file system gets that asks for nothing. Runs in the foreground until it is
 * unmounted.
 */
#define _GNU_SOURCE

#include "common.h"

#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static bool best;

/* The process stands in SOURCE. */
static const char *below(const char *path)
{
	return path[1] ? path + 1 : ".";
}

static int result_of(int value)
{
	return value == -1 ? -errno : 0;
}

/* What was made is the caller's. */
static int give(const char *path)
{
	struct fuse_context *caller = fuse_get_context();
	struct stat made;

	if (lstat(below(path), &made) == 0 && made.st_uid == caller->uid && made.st_gid == caller->gid)
		return 0;
	return result_of(lchown(below(path), caller->uid, caller->gid));
}

/* An open directory, its position, and the entry there if it has been read already. */
struct directory {
	DIR *stream;
	struct dirent *next;
	off_t offset;
};

static struct directory *directory_of(const struct fuse_file_info *fi)
{
	return (struct directory *)(uintptr_t)fi->fh;
}

static void *do_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
	want(conn, FUSE_CAP_POSIX_ACL);
	config->use_ino = 1;
	config->nullpath_ok = 1;
	if (best) {
		want(conn, FUSE_CAP_SPLICE_READ);
		want(conn, FUSE_CAP_SPLICE_WRITE);
		/* Pages of the lower file's cache are not ours to give away. */
		refuse(conn, FUSE_CAP_SPLICE_MOVE);
		conn->max_background = 64;
		config->entry_timeout = config->attr_timeout = config->negative_timeout = 365.0 * 24 * 3600;
		config->kernel_cache = 1;
		/* What is removed while it is open is the lower file system's matter. */
		config->hard_remove = 1;
	}
	return NULL;
}

static int do_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	return result_of(fi ? fstat((int)fi->fh, st) : lstat(below(path), st));
}

static int do_readlink(const char *path, char *to, size_t size)
{
	ssize_t length = readlink(below(path), to, size - 1);

	if (length == -1)
		return -errno;
	to[length] = '\0';
	return 0;
}

static int do_mknod(const char *path, mode_t mode, dev_t dev)
{
	return mknod(below(path), mode, dev) == -1 ? -errno : give(path);
}

static int do_mkdir(const char *path, mode_t mode)
{
	return mkdir(below(path), mode) == -1 ? -errno : give(path);
}

static int do_unlink(const char *path)
{
	return result_of(unlink(below(path)));
}

static int do_rmdir(const char *path)
{
	return result_of(rmdir(below(path)));
}

static int do_symlink(const char *target, const char *path)
{
	return symlink(target, below(path)) == -1 ? -errno : give(path);
}

static int do_rename(const char *from, const char *to, unsigned flags)
{
	return result_of(renameat2(AT_FDCWD, below(from), AT_FDCWD, below(to), flags));
}

static int do_link(const char *from, const char *to)
{
	return result_of(link(below(from), below(to)));
}

static int do_chmod(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	return result_of(fi ? fchmod((int)fi->fh, mode) : chmod(below(path), mode));
}

static int do_chown(const char *path, uid_t uid, gid_t gid, struct fuse_file_info *fi)
{
	return result_of(fi ? fchown((int)fi->fh, uid, gid) : lchown(below(path), uid, gid));
}

static int do_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
	return result_of(fi ? ftruncate((int)fi->fh, size) : truncate(below(path), size));
}

static int do_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *fi)
{
	return result_of(fi ? futimens((int)fi->fh, times)
			    : utimensat(AT_FDCWD, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int opened(int fd, struct fuse_file_info *fi)
{
	if (fd == -1)
		return -errno;
	fi->fh = (uint64_t)fd;
	return 0;
}

static int do_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	int result = opened(open(below(path), fi->flags, mode), fi);

	return result ? result : give(path);
}

static int do_open(const char *path, struct fuse_file_info *fi)
{
	return opened(open(below(path), fi->flags), fi);
}

static int do_read_buf(const char *path, struct fuse_bufvec **data, size_t size, off_t offset,
		       struct fuse_file_info *fi)
{
	struct fuse_bufvec *source = malloc(sizeof *source);

	(void)path;
	if (!source)
		return -ENOMEM;
	*source = FUSE_BUFVEC_INIT(size);
	source->buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	source->buf[0].fd = (int)fi->fh;
	source->buf[0].pos = offset;
	*data = source;
	return 0;
}

static int do_read(const char *path, char *to, size_t size, off_t offset, struct fuse_file_info *fi)
{
	ssize_t length = pread((int)fi->fh, to, size, offset);

	(void)path;
	return length == -1 ? -errno : (int)length;
}

static int do_write_buf(const char *path, struct fuse_bufvec *data, off_t offset, struct fuse_file_info *fi)
{
	struct fuse_bufvec to = FUSE_BUFVEC_INIT(fuse_buf_size(data));

	(void)path;
	to.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	to.buf[0].fd = (int)fi->fh;
	to.buf[0].pos = offset;
	return (int)fuse_buf_copy(&to, data, FUSE_BUF_SPLICE_NONBLOCK);
}

static int do_release(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	close((int)fi->fh);
	return 0;
}

static int do_fsync(const char *path, int datasync, struct fuse_file_info *fi)
{
	(void)path;
	return result_of(datasync ? fdatasync((int)fi->fh) : fsync((int)fi->fh));
}

static int do_setxattr(const char *path, const char *name, const char *value, size_t size, int flags)
{
	return result_of(lsetxattr(below(path), name, value, size, flags));
}

static int do_getxattr(const char *path, const char *name, char *to, size_t size)
{
	ssize_t length = lgetxattr(below(path), name, to, size);

	return length == -1 ? -errno : (int)length;
}

static int do_listxattr(const char *path, char *to, size_t size)
{
	ssize_t length = llistxattr(below(path), to, size);

	return length == -1 ? -errno : (int)length;
}

static int do_removexattr(const char *path, const char *name)
{
	return result_of(lremovexattr(below(path), name));
}

static int do_statfs(const char *path, struct statvfs *st)
{
	return result_of(statvfs(below(path), st));
}

static int do_opendir(const char *path, struct fuse_file_info *fi)
{
	struct directory *directory = calloc(1, sizeof *directory);

	if (!directory)
		return -ENOMEM;
	directory->stream = opendir(below(path));
	if (!directory->stream) {
		int error = errno;

		free(directory);
		return -error;
	}
	fi->fh = (uint64_t)(uintptr_t)directory;
	return 0;
}

static int do_readdir(const char *path, void *to, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *fi,
		      enum fuse_readdir_flags flags)
{
	struct directory *directory = directory_of(fi);
	struct dirent *entry;

	(void)path;
	if (offset != directory->offset) {
		seekdir(directory->stream, offset);
		directory->next = NULL;
		directory->offset = offset;
	}
	while ((entry = directory->next ? directory->next : readdir(directory->stream))) {
		directory->next = entry;
		struct stat st = { .st_ino = entry->d_ino, .st_mode = (mode_t)DTTOIF(entry->d_type) };
		enum fuse_fill_dir_flags filled = 0;

		if ((flags & FUSE_READDIR_PLUS) &&
		    fstatat(dirfd(directory->stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			filled = FUSE_FILL_DIR_PLUS;
		if (fill(to, entry->d_name, &st, entry->d_off, filled))
			break;
		directory->offset = entry->d_off;
		directory->next = NULL;
	}
	return 0;
}

static int do_releasedir(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	closedir(directory_of(fi)->stream);
	free(directory_of(fi));
	return 0;
}

static const struct fuse_operations operations = {
	.init = do_init,
	.getattr = do_getattr,
	.readlink = do_readlink,
	.mknod = do_mknod,
	.mkdir = do_mkdir,
	.unlink = do_unlink,
	.rmdir = do_rmdir,
	.symlink = do_symlink,
	.rename = do_rename,
	.link = do_link,
	.chmod = do_chmod,
	.chown = do_chown,
	.truncate = do_truncate,
	.utimens = do_utimens,
	.create = do_create,
	.open = do_open,
	.read = do_read,
	.read_buf = do_read_buf,
	.write_buf = do_write_buf,
	.release = do_release,
	.fsync = do_fsync,
	.statfs = do_statfs,
	.setxattr = do_setxattr,
	.getxattr = do_getxattr,
	.listxattr = do_listxattr,
	.removexattr = do_removexattr,
	.opendir = do_opendir,
	.readdir = do_readdir,
	.releasedir = do_releasedir,
};

int main(int argc, char *argv[])
{
	char *arguments[] = { argv[0], "-osubtype=libfuse,default_permissions", NULL, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(2, arguments);
	struct fuse_loop_config *config;
	int option, result;

	while ((option = getopt(argc, argv, "o:")) != -1) {
		if (option != 'o' || strcmp(optarg, "best"))
			errx(2, "usage: paths [-o best] SOURCE MOUNTPOINT");
		best = true;
	}
	if (argc - optind != 2)
		errx(2, "usage: paths [-o best] SOURCE MOUNTPOINT");
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
	if (best) {
		arguments[2] = "-oio_uring";
		args.argc = 3;
	}
#endif
	raise_descriptor_limit();
	umask(0);
	char *point = realpath(argv[optind + 1], NULL);
	if (!point || chdir(argv[optind]))
		err(1, "%s, %s", argv[optind], argv[optind + 1]);

	struct fuse *fuse = fuse_new(&args, &operations, sizeof operations, NULL);
	if (!fuse)
		errx(1, "cannot make a file system");
	struct fuse_session *session = fuse_get_session(fuse);
	if (fuse_set_signal_handlers(session) != 0)
		errx(1, "cannot set signal handlers");
	if (fuse_mount(fuse, point) != 0)
		errx(1, "cannot mount at %s", point);
	config = loop_config(best);
	result = fuse_loop_mt(fuse, config);
	fuse_loop_cfg_destroy(config);
	fuse_unmount(fuse);
	fuse_remove_signal_handlers(session);
	fuse_destroy(fuse);
	free(point);
	return result ? 1 : 0;
}
