/* Open files and directories. */
#define _GNU_SOURCE

#include "adapter.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int file_of(fuse_ino_t id, const struct fuse_file_info *fi)
{
	struct node *node = node_of(id);
	int fd;

	if (fi && fi->fh)
		return ((struct open_file *)(uintptr_t)fi->fh)->fd;
	lock_node();
	fd = node->data_fd;
	if (fd < 0) {
		fd = reopen(node, O_RDWR);
		if (fd < 0)
			fd = reopen(node, O_RDONLY);
		node->data_fd = fd;
	}
	unlock_node();
	return fd;
}

/* With a write-back cache the kernel reads through descriptors for writing, and appends by itself. */
static int lower_flags(int flags)
{
	flags &= ~O_DIRECT;
	if (settings.writeback) {
		flags &= ~O_APPEND;
		if ((flags & O_ACCMODE) == O_WRONLY)
			flags = (flags & ~O_ACCMODE) | O_RDWR;
	}
	return flags;
}

static void back(fuse_req_t req, struct node *node, struct open_file *file, struct fuse_file_info *fi)
{
#ifdef FUSE_CAP_PASSTHROUGH
	lock_node();
	if (node->backing_users == 0)
		node->backing_id = fuse_passthrough_open(req, file->fd);
	if (node->backing_id > 0) {
		node->backing_users++;
		file->backed = true;
		fi->backing_id = node->backing_id;
		fi->keep_cache = 0;
	}
	unlock_node();
#else
	(void)req;
	(void)node;
	(void)file;
	(void)fi;
#endif
}

static void unback(fuse_req_t req, struct node *node, const struct open_file *file)
{
#ifdef FUSE_CAP_PASSTHROUGH
	if (!file->backed)
		return;
	lock_node();
	if (--node->backing_users == 0)
		fuse_passthrough_close(req, node->backing_id);
	unlock_node();
#else
	(void)req;
	(void)node;
	(void)file;
#endif
}

/* Fills in fi for a descriptor, which it takes over; 0 or an errno. */
static int opened(fuse_req_t req, struct node *node, int fd, struct fuse_file_info *fi)
{
	struct open_file *file = calloc(1, sizeof *file);

	if (!file) {
		close(fd);
		return ENOMEM;
	}
	file->fd = fd;
	fi->fh = (uintptr_t)file;
	fi->direct_io = settings.direct;
	if (settings.best) {
		fi->keep_cache = !settings.direct;
		fi->noflush = 1;
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 15)
		fi->parallel_direct_writes = 1;
#endif
	}
	if (settings.passthrough)
		back(req, node, file, fi);
	return 0;
}

void do_open(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	struct node *node = node_of(id);
	int fd, error;

	if (settings.zero_open) {
		fuse_reply_err(req, ENOSYS);
		return;
	}
	fd = reopen(node, lower_flags(fi->flags));
	error = fd < 0 ? errno : opened(req, node, fd, fi);
	if (error)
		fuse_reply_err(req, error);
	else
		fuse_reply_open(req, fi);
}

void do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct node *node = node_of(parent);
	struct fuse_entry_param entry;
	int error, fd = openat(node->fd, name, lower_flags(fi->flags) | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);

	if (fd < 0) {
		fuse_reply_err(req, errno);
		return;
	}
	error = make_entry(node, name, &entry);
	if (error)
		close(fd);
	else
		error = opened(req, node_of(entry.ino), fd, fi);
	if (error)
		fuse_reply_err(req, error);
	else
		fuse_reply_create(req, &entry, fi);
}

/* Whether libfuse reads straight into the answer. */
static bool reads_in_place(fuse_req_t req)
{
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
	return fuse_req_is_uring(req);
#else
	(void)req;
	return false;
#endif
}

/* Answers from a buffer that the thread keeps: where splice is off, libfuse would make one each time. */
static void read_copied(fuse_req_t req, int fd, size_t size, off_t offset)
{
	static _Thread_local char *buffer;
	static _Thread_local size_t capacity;
	ssize_t length;

	if (size > capacity) {
		free(buffer);
		buffer = malloc(size);
		capacity = buffer ? size : 0;
	}
	if (!buffer) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	length = pread(fd, buffer, size, offset);
	if (length < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_buf(req, buffer, (size_t)length);
}

void do_read(fuse_req_t req, fuse_ino_t id, size_t size, off_t offset, struct fuse_file_info *fi)
{
	struct fuse_bufvec data = FUSE_BUFVEC_INIT(size);

	data.buf[0].fd = file_of(id, fi);
	if (data.buf[0].fd < 0) {
		fuse_reply_err(req, errno);
		return;
	}
	if (settings.direct && !reads_in_place(req)) {
		read_copied(req, data.buf[0].fd, size, offset);
		return;
	}
	data.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	data.buf[0].pos = offset;
	fuse_reply_data(req, &data, 0);
}

void do_write_buf(fuse_req_t req, fuse_ino_t id, struct fuse_bufvec *data, off_t offset,
		  struct fuse_file_info *fi)
{
	struct fuse_bufvec out = FUSE_BUFVEC_INIT(fuse_buf_size(data));
	ssize_t written;

	out.buf[0].fd = file_of(id, fi);
	if (out.buf[0].fd < 0) {
		fuse_reply_err(req, errno);
		return;
	}
	out.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	out.buf[0].pos = offset;
	written = fuse_buf_copy(&out, data, 0);
	if (written < 0)
		fuse_reply_err(req, (int)-written);
	else
		fuse_reply_write(req, (size_t)written);
}

void do_flush(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	/* Nothing is kept here that a flush could write; ENOSYS makes the kernel ask no more. */
	if (settings.best) {
		fuse_reply_err(req, ENOSYS);
		return;
	}
	int fd = file_of(id, fi), copy = fd < 0 ? -1 : dup(fd);

	fuse_reply_err(req, copy >= 0 && close(copy) == 0 ? 0 : errno);
}

void do_release(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	struct open_file *file = (struct open_file *)(uintptr_t)fi->fh;

	if (file) {
		unback(req, node_of(id), file);
		close(file->fd);
		free(file);
	}
	fuse_reply_err(req, 0);
}

void do_fsync(fuse_req_t req, fuse_ino_t id, int datasync, struct fuse_file_info *fi)
{
	int fd = file_of(id, fi);
	int result = fd < 0 ? -1 : datasync ? fdatasync(fd) : fsync(fd);

	fuse_reply_err(req, result == 0 ? 0 : errno);
}

struct directory {
	pthread_mutex_t lock;
	DIR *stream;
	struct dirent *next;
	off_t offset;
};

void do_opendir(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	struct directory *directory = calloc(1, sizeof *directory);
	int fd = directory ? reopen(node_of(id), O_RDONLY | O_DIRECTORY) : -1;

	if (fd >= 0)
		directory->stream = fdopendir(fd);
	if (fd < 0 || !directory->stream) {
		fuse_reply_err(req, directory ? errno : ENOMEM);
		if (fd >= 0)
			close(fd);
		free(directory);
		return;
	}
	pthread_mutex_init(&directory->lock, NULL);
	fi->fh = (uintptr_t)directory;
	if (settings.best) {
		fi->cache_readdir = 1;
		fi->keep_cache = 1;
	}
	fuse_reply_open(req, fi);
}

/* Adds one entry; the bytes it takes, or would take if that is more than there is room for. */
static size_t add_entry(fuse_req_t req, struct node *node, char *to, size_t room, bool plus,
			const struct dirent *found)
{
	struct stat attr = { .st_ino = found->d_ino, .st_mode = (mode_t)found->d_type << 12 };
	struct fuse_entry_param entry = { .attr = attr };
	bool dots = !strcmp(found->d_name, ".") || !strcmp(found->d_name, "..");
	size_t length;

	if (!plus)
		return fuse_add_direntry(req, to, room, found->d_name, &attr, found->d_off);
	if (!dots && fuse_add_direntry_plus(req, NULL, 0, found->d_name, &entry, 0) <= room &&
	    make_entry(node, found->d_name, &entry) != 0)
		memset(&entry, 0, sizeof entry);
	length = fuse_add_direntry_plus(req, to, room, found->d_name, &entry, found->d_off);
	if (entry.ino && length > room)
		forget_node(entry.ino, 1);
	return length;
}

static void list(fuse_req_t req, fuse_ino_t id, size_t size, off_t offset, struct fuse_file_info *fi, bool plus)
{
	struct directory *directory = (struct directory *)(uintptr_t)fi->fh;
	char *buffer = malloc(size);
	size_t used = 0;

	if (!buffer) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	pthread_mutex_lock(&directory->lock);
	if (offset != directory->offset) {
		seekdir(directory->stream, offset);
		directory->next = NULL;
		directory->offset = offset;
	}
	for (;;) {
		if (!directory->next)
			directory->next = readdir(directory->stream);
		if (!directory->next)
			break;
		size_t length = add_entry(req, node_of(id), buffer + used, size - used, plus, directory->next);

		if (length > size - used)
			break;
		used += length;
		directory->offset = directory->next->d_off;
		directory->next = NULL;
	}
	pthread_mutex_unlock(&directory->lock);
	fuse_reply_buf(req, buffer, used);
	free(buffer);
}

void do_readdir(fuse_req_t req, fuse_ino_t id, size_t size, off_t offset, struct fuse_file_info *fi)
{
	list(req, id, size, offset, fi, false);
}

void do_readdirplus(fuse_req_t req, fuse_ino_t id, size_t size, off_t offset, struct fuse_file_info *fi)
{
	list(req, id, size, offset, fi, true);
}

void do_releasedir(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	struct directory *directory = (struct directory *)(uintptr_t)fi->fh;

	(void)id;
	closedir(directory->stream);
	pthread_mutex_destroy(&directory->lock);
	free(directory);
	fuse_reply_err(req, 0);
}
