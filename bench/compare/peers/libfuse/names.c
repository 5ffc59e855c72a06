/* Names and attributes. */
#define _GNU_SOURCE

#include "adapter.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { BUCKETS = 1 << 16 };

static struct node root = { .data_fd = -1, .lookups = 2 };
static struct node *buckets[BUCKETS];
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;

void lock_node(void)
{
	pthread_mutex_lock(&table);
}

void unlock_node(void)
{
	pthread_mutex_unlock(&table);
}

void open_root(const char *source)
{
	struct stat stat;

	root.fd = open(source, O_PATH);
	if (root.fd < 0 || fstat(root.fd, &stat) != 0)
		err(1, "%s", source);
	root.ino = stat.st_ino;
	root.dev = stat.st_dev;
}

struct node *node_of(fuse_ino_t id)
{
	return id == FUSE_ROOT_ID ? &root : (struct node *)(uintptr_t)id;
}

int reopen(const struct node *node, int flags)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/self/fd/%d", node->fd);
	return open(path, (flags | O_CLOEXEC) & ~O_NOFOLLOW);
}

static struct node **bucket(ino_t ino)
{
	return &buckets[(ino * UINT64_C(0x9e3779b97f4a7c15)) >> 48];
}

/* Finds or adds the node of fd, which it takes over; counts one lookup. */
static struct node *intern(int fd, const struct stat *stat)
{
	struct node **head = bucket(stat->st_ino), *node;

	pthread_mutex_lock(&table);
	for (node = *head; node; node = node->next)
		if (node->ino == stat->st_ino && node->dev == stat->st_dev)
			break;
	if (node) {
		node->lookups++;
		pthread_mutex_unlock(&table);
		close(fd);
		return node;
	}
	node = calloc(1, sizeof *node);
	if (node) {
		node->fd = fd;
		node->data_fd = -1;
		node->ino = stat->st_ino;
		node->dev = stat->st_dev;
		node->lookups = 1;
		node->next = *head;
		*head = node;
	}
	pthread_mutex_unlock(&table);
	if (!node)
		close(fd);
	return node;
}

int make_entry(struct node *parent, const char *name, struct fuse_entry_param *entry)
{
	struct node *node;
	int fd;

	memset(entry, 0, sizeof *entry);
	entry->attr_timeout = entry->entry_timeout = settings.timeout;
	fd = openat(parent->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno;
	if (fstatat(fd, "", &entry->attr, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0) {
		int error = errno;

		close(fd);
		return error;
	}
	node = intern(fd, &entry->attr);
	if (!node)
		return ENOMEM;
	entry->ino = (uintptr_t)node;
	return 0;
}

void forget_node(fuse_ino_t id, uint64_t count)
{
	struct node *node = node_of(id), **link;

	if (node == &root)
		return;
	pthread_mutex_lock(&table);
	node->lookups -= count;
	if (node->lookups > 0) {
		pthread_mutex_unlock(&table);
		return;
	}
	for (link = bucket(node->ino); *link != node; link = &(*link)->next)
		;
	*link = node->next;
	pthread_mutex_unlock(&table);
	close(node->fd);
	if (node->data_fd >= 0)
		close(node->data_fd);
	free(node);
}

static void reply_entry(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry;
	int error = make_entry(node_of(parent), name, &entry);

	if (error)
		fuse_reply_err(req, error);
	else
		fuse_reply_entry(req, &entry);
}

void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry;
	int error = make_entry(node_of(parent), name, &entry);

	/* Node id 0 makes the kernel remember that there is no such name. */
	if (error == ENOENT && settings.best)
		error = 0;
	if (error)
		fuse_reply_err(req, error);
	else
		fuse_reply_entry(req, &entry);
}

void do_forget(fuse_req_t req, fuse_ino_t id, uint64_t count)
{
	forget_node(id, count);
	fuse_reply_none(req);
}

void do_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		forget_node(forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

void do_getattr(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	struct stat attr;

	(void)fi;
	if (fstatat(node_of(id)->fd, "", &attr, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_attr(req, &attr, settings.timeout);
}

static struct timespec time_to_set(struct timespec given, bool set, bool now)
{
	if (now)
		return (struct timespec){ .tv_nsec = UTIME_NOW };
	return set ? given : (struct timespec){ .tv_nsec = UTIME_OMIT };
}

static int set_attributes(fuse_ino_t id, const struct stat *attr, int valid, struct fuse_file_info *fi)
{
	const struct node *node = node_of(id);
	char path[64];

	snprintf(path, sizeof path, "/proc/self/fd/%d", node->fd);
	if ((valid & FUSE_SET_ATTR_MODE) && chmod(path, attr->st_mode) != 0)
		return errno;
	if (valid & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) {
		uid_t uid = (valid & FUSE_SET_ATTR_UID) ? attr->st_uid : (uid_t)-1;
		gid_t gid = (valid & FUSE_SET_ATTR_GID) ? attr->st_gid : (gid_t)-1;

		if (fchownat(node->fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0)
			return errno;
	}
	if (valid & FUSE_SET_ATTR_SIZE) {
		int fd = fi ? file_of(id, fi) : -1;

		if ((fd >= 0 ? ftruncate(fd, attr->st_size) : truncate(path, attr->st_size)) != 0)
			return errno;
	}
	if (valid & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME)) {
		struct timespec times[2] = {
			time_to_set(attr->st_atim, valid & FUSE_SET_ATTR_ATIME, valid & FUSE_SET_ATTR_ATIME_NOW),
			time_to_set(attr->st_mtim, valid & FUSE_SET_ATTR_MTIME, valid & FUSE_SET_ATTR_MTIME_NOW),
		};

		if (utimensat(AT_FDCWD, path, times, 0) != 0)
			return errno;
	}
	return 0;
}

void do_setattr(fuse_req_t req, fuse_ino_t id, struct stat *attr, int valid, struct fuse_file_info *fi)
{
	int error = set_attributes(id, attr, valid, fi);

	if (error)
		fuse_reply_err(req, error);
	else
		do_getattr(req, id, fi);
}

void do_readlink(fuse_req_t req, fuse_ino_t id)
{
	char target[PATH_MAX + 1];
	ssize_t length = readlinkat(node_of(id)->fd, "", target, PATH_MAX);

	if (length < 0) {
		fuse_reply_err(req, errno);
		return;
	}
	target[length] = 0;
	fuse_reply_readlink(req, target);
}

void do_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	if (mknodat(node_of(parent)->fd, name, mode, rdev) != 0)
		fuse_reply_err(req, errno);
	else
		reply_entry(req, parent, name);
}

void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	if (mkdirat(node_of(parent)->fd, name, mode) != 0)
		fuse_reply_err(req, errno);
	else
		reply_entry(req, parent, name);
}

void do_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	if (symlinkat(target, node_of(parent)->fd, name) != 0)
		fuse_reply_err(req, errno);
	else
		reply_entry(req, parent, name);
}

void do_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, unlinkat(node_of(parent)->fd, name, 0) == 0 ? 0 : errno);
}

void do_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, unlinkat(node_of(parent)->fd, name, AT_REMOVEDIR) == 0 ? 0 : errno);
}

void do_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	       const char *new_name, unsigned flags)
{
	int result = renameat2(node_of(parent)->fd, name, node_of(new_parent)->fd, new_name, flags);

	fuse_reply_err(req, result == 0 ? 0 : errno);
}

void do_link(fuse_req_t req, fuse_ino_t id, fuse_ino_t new_parent, const char *new_name)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/self/fd/%d", node_of(id)->fd);
	if (linkat(AT_FDCWD, path, node_of(new_parent)->fd, new_name, AT_SYMLINK_FOLLOW) != 0)
		fuse_reply_err(req, errno);
	else
		reply_entry(req, new_parent, new_name);
}

void do_statfs(fuse_req_t req, fuse_ino_t id)
{
	struct statvfs stat;

	if (fstatvfs(node_of(id)->fd, &stat) != 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_statfs(req, &stat);
}
