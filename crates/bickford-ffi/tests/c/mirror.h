/* A directory served over paths: what `dispatch` gets is done in `below`. READ and READDIR of what is named
 * `later*` are answered by another thread. It includes what it needs, and comes first. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "bickford.h"
#include "check.h"

#define ASK _IOWR('b', 1, int)
#define LATER_NAMES 300
#define ENTRIES 10
#define ENTRY_INO 123456789

static int below;
static int seen[64];
static int destroyed;
/* While it is not zero, answers of another thread wait. */
static int held;
static int held_now;
static int asked;
/* The reply whose caller got a signal. */
static uint64_t told;

static const char *relative(const char *path)
{
	if (path == NULL)
		return NULL;
	return path[1] == '\0' ? "." : path + 1;
}

static int result(long code)
{
	return code < 0 ? errno : 0;
}

static bickford_time stamp(struct timespec time)
{
	return (bickford_time){.seconds = time.tv_sec, .nanoseconds = (uint32_t)time.tv_nsec};
}

static void put_attr(bickford_attr *attr, const struct stat *found)
{
	*attr = (bickford_attr){
		.ino = found->st_ino,
		.size = (uint64_t)found->st_size,
		.blocks = (uint64_t)found->st_blocks,
		.accessed = stamp(found->st_atim),
		.modified = stamp(found->st_mtim),
		.changed = stamp(found->st_ctim),
		.mode = found->st_mode,
		.links = (uint32_t)found->st_nlink,
		.uid = found->st_uid,
		.gid = found->st_gid,
		.rdev = (uint32_t)(major(found->st_rdev) << 8 | minor(found->st_rdev)),
		.block_size = 4096,
	};
}

static int is_file(const bickford_request *request)
{
	return (request->present & BICKFORD_HAS_HANDLE) != 0 && request->handle != 0;
}

static int32_t get_attr(const bickford_request *request, bickford_answer *answer)
{
	struct stat found;
	int code;

	if (is_file(request))
		code = fstat((int)request->handle, &found);
	else
		code = fstatat(below, relative(request->path), &found, AT_SYMLINK_NOFOLLOW);
	if (code != 0)
		return errno;
	put_attr(&answer->attr, &found);
	return 0;
}

static struct timespec chosen(const bickford_request *request, bickford_time time, uint32_t set,
	uint32_t now)
{
	struct timespec chosen = {.tv_nsec = UTIME_OMIT};

	if (request->present & now)
		chosen.tv_nsec = UTIME_NOW;
	else if (request->present & set)
		chosen = (struct timespec){.tv_sec = time.seconds, .tv_nsec = time.nanoseconds};
	return chosen;
}

static int32_t set_attr(const bickford_request *request)
{
	const char *path = relative(request->path);
	uint32_t present = request->present;

	if (present & BICKFORD_HAS_MODE)
		return result(fchmodat(below, path, request->mode, 0));
	if (present & (BICKFORD_HAS_UID | BICKFORD_HAS_GID))
		return result(fchownat(below, path,
			present & BICKFORD_HAS_UID ? request->new_uid : (uid_t)-1,
			present & BICKFORD_HAS_GID ? request->new_gid : (gid_t)-1, AT_SYMLINK_NOFOLLOW));
	if (present & BICKFORD_HAS_SIZE) {
		int file = openat(below, path, O_WRONLY);
		int code = result(ftruncate(file, (off_t)request->size));

		close(file);
		return code;
	}
	struct timespec times[2] = {
		chosen(request, request->accessed, BICKFORD_HAS_ACCESSED, BICKFORD_HAS_ACCESSED_NOW),
		chosen(request, request->modified, BICKFORD_HAS_MODIFIED, BICKFORD_HAS_MODIFIED_NOW),
	};
	return result(utimensat(below, path, times, AT_SYMLINK_NOFOLLOW));
}

static int32_t opened(bickford_answer *answer, int file)
{
	if (file < 0)
		return errno;
	answer->handle = (uint64_t)file;
	return 0;
}

static int32_t measured(bickford_answer *answer, ssize_t length)
{
	if (length < 0)
		return errno;
	answer->data_length = (uint64_t)length;
	return 0;
}

static int32_t counted(bickford_answer *answer, ssize_t count)
{
	if (count < 0)
		return errno;
	answer->count = (uint64_t)count;
	return 0;
}

/* A path that system calls of extended attributes take. */
static const char *absolute(const char *path)
{
	static __thread char text[8192];

	snprintf(text, sizeof text, "/proc/self/fd/%d%s", below, path);
	return text;
}

static int32_t xattr(const bickford_request *request, bickford_answer *answer)
{
	char name[256];
	const char *path = absolute(request->path);

	snprintf(name, sizeof name, "%.*s", (int)request->name_length, (const char *)request->name);
	switch (request->operation) {
	case BICKFORD_OP_SETXATTR:
		return result(lsetxattr(path, name, request->data, request->size, (int)request->flags));
	case BICKFORD_OP_GETXATTR:
		return measured(answer, lgetxattr(path, name, answer->data, answer->data_capacity));
	case BICKFORD_OP_LISTXATTR:
		return measured(answer, llistxattr(path, (char *)answer->data, answer->data_capacity));
	default:
		return result(lremovexattr(path, name));
	}
}

static int32_t list(const bickford_request *request, bickford_reply *reply)
{
	DIR *directory = fdopendir(openat(below, relative(request->path), O_RDONLY | O_DIRECTORY));
	struct dirent *entry;

	if (directory == NULL)
		return errno;
	while ((entry = readdir(directory)) != NULL) {
		bickford_attr attr;
		struct stat found;

		if (fstatat(dirfd(directory), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0)
			continue;
		put_attr(&attr, &found);
		/* With attributes, and without. */
		CHECK(bickford_reply_list(reply, (const uint8_t *)entry->d_name, strlen(entry->d_name),
			found.st_mode, entry->d_name[0] == 'a' ? &attr : NULL) == 0);
	}
	closedir(directory);
	return 0;
}

/* In parts: names that are made up. */
static int32_t list_parts(const bickford_request *request, bickford_reply *reply)
{
	for (uint64_t i = request->offset; i < LATER_NAMES; i++) {
		char name[64];

		snprintf(name, sizeof name, "name-%050d", (int)i);
		if (bickford_reply_list_at(reply, (const uint8_t *)name, strlen(name), S_IFREG, i + 1) != 1)
			break;
	}
	return 0;
}

/* In parts: names that are made up, with numbers, and with attributes where they are of use. */
static int32_t list_entries(const bickford_request *request, bickford_reply *reply)
{
	for (uint64_t i = request->offset; i < ENTRIES; i++) {
		bickford_attr attr = {.ino = ENTRY_INO + i, .mode = S_IFREG | 0600, .links = 1, .size = i};
		bickford_listed entry = {.offset = i + 1, .ino = attr.ino, .mode = S_IFREG};
		char name[64];

		if (request->flags == 1)
			entry.attr = &attr;
		snprintf(name, sizeof name, "entry-%d", (int)i);
		if (bickford_reply_list_entry(reply, (const uint8_t *)name, strlen(name), &entry) != 1)
			break;
	}
	return 0;
}

struct later {
	uint64_t handle;
	bickford_request request;
};

static void tell(void *user, uint64_t handle)
{
	__atomic_store_n((uint64_t *)user, handle, __ATOMIC_SEQ_CST);
}

/* Asks for a reply while a line about its listing is told. */
static void ask(void *user, uint32_t level, const char *text)
{
	(void)level;
	(void)text;
	CHECK(bickford_deferred_interrupted(*(uint64_t *)user) >= 0);
	__atomic_fetch_add(&asked, 1, __ATOMIC_SEQ_CST);
}

static void *answer_later(void *argument)
{
	static uint64_t listed;
	struct later later = *(struct later *)argument;
	bickford_answer answer;
	int code = 0;

	free(argument);
	CHECK(bickford_deferred_answer(later.handle, &answer) == 0);
	CHECK(later.request.path == NULL && later.request.data == NULL);
	CHECK(bickford_deferred_on_interrupt(later.handle, tell, &told) == 0);
	__atomic_fetch_add(&held_now, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&held, __ATOMIC_SEQ_CST) != 0 && code == 0) {
		usleep(1000);
		if (bickford_deferred_interrupted(later.handle) == 1)
			code = EINTR;
	}
	__atomic_fetch_sub(&held_now, 1, __ATOMIC_SEQ_CST);
	if (code == 0 && later.request.operation == BICKFORD_OP_READDIR) {
		listed = later.handle;
		CHECK(bickford_log(BICKFORD_LOG_WARNING, ask, &listed) == 0);
		CHECK(bickford_deferred_list(later.handle, (const uint8_t *)"no/name", 7, S_IFREG, NULL) == 0);
		CHECK(bickford_log(BICKFORD_LOG_WARNING, NULL, NULL) == 0);
		CHECK(__atomic_load_n(&asked, __ATOMIC_SEQ_CST) > 0);
		CHECK(bickford_deferred_list(later.handle, (const uint8_t *)"from-a-thread", 13, S_IFREG,
			NULL) == 0);
		CHECK(bickford_deferred_list_entry(later.handle, (const uint8_t *)"and-its-entry", 13,
			&(bickford_listed){.ino = ENTRY_INO, .mode = S_IFREG}) == 1);
	} else if (code == 0) {
		code = measured(&answer, pread((int)later.request.handle, answer.data, later.request.size,
			(off_t)later.request.offset));
	}
	CHECK(bickford_deferred_complete(later.handle, code, &answer) == 0);
	return NULL;
}

static int32_t defer(const bickford_request *request, bickford_reply *reply)
{
	struct later *later = malloc(sizeof *later);
	pthread_t thread;

	CHECK(later != NULL && bickford_reply_defer(reply, &later->handle) == 0);
	later->request = *request;
	later->request.path = NULL;
	later->request.data = NULL;
	CHECK(pthread_create(&thread, NULL, answer_later, later) == 0);
	pthread_detach(thread);
	return BICKFORD_LATER;
}

static int32_t lock(const bickford_request *request, bickford_answer *answer)
{
	static const short kinds[] = {F_RDLCK, F_WRLCK, F_UNLCK};
	struct flock lock = {
		.l_type = kinds[request->lock_kind],
		.l_start = (off_t)request->lock_start,
		.l_len = request->lock_end >= INT64_MAX ? 0 :
			(off_t)(request->lock_end - request->lock_start + 1),
	};

	CHECK(is_file(request));
	if (request->operation == BICKFORD_OP_SETLK)
		/* Of each open file: it is what the owner has. */
		return result(fcntl((int)request->handle, F_OFD_SETLK, &lock));
	if (fcntl((int)request->handle, F_OFD_GETLK, &lock) != 0)
		return errno;
	answer->lock_kind = lock.l_type == F_UNLCK ? 2 : lock.l_type == F_WRLCK;
	answer->lock_start = (uint64_t)lock.l_start;
	answer->lock_end = lock.l_len == 0 ? INT64_MAX : (uint64_t)(lock.l_start + lock.l_len - 1);
	return 0;
}

static int32_t control(const bickford_request *request, bickford_answer *answer)
{
	int value;

	if (request->flags2 != (uint32_t)ASK)
		return ENOTTY;
	CHECK(request->data_length == sizeof value && request->size == sizeof value);
	memcpy(&value, request->data, sizeof value);
	value *= 2;
	memcpy(answer->data, &value, sizeof value);
	answer->data_length = sizeof value;
	answer->count = 7;
	return 0;
}

static int32_t open_file(const bickford_request *request, bickford_answer *answer)
{
	const char *path = relative(request->path);
	int flags = (int)request->flags & ~(O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW | O_DIRECT);

	switch (request->operation) {
	case BICKFORD_OP_CREATE:
		return opened(answer, openat(below, path, flags | O_CREAT | O_EXCL, request->mode & 07777));
	case BICKFORD_OP_TMPFILE:
		return opened(answer, openat(below, path, O_TMPFILE | O_RDWR, request->mode & 07777));
	case BICKFORD_OP_OPENDIR:
		return opened(answer, openat(below, path, O_RDONLY | O_DIRECTORY));
	default:
		return opened(answer, openat(below, path, flags));
	}
}

static int32_t change_names(const bickford_request *request)
{
	const char *path = relative(request->path), *path2 = relative(request->path2);
	char text[8192];

	switch (request->operation) {
	case BICKFORD_OP_MKNOD:
		return result(mknodat(below, path, request->mode, request->rdev));
	case BICKFORD_OP_MKDIR:
		return result(mkdirat(below, path, request->mode & 07777));
	case BICKFORD_OP_UNLINK:
		return result(unlinkat(below, path, 0));
	case BICKFORD_OP_RMDIR:
		return result(unlinkat(below, path, AT_REMOVEDIR));
	case BICKFORD_OP_SYMLINK:
		snprintf(text, sizeof text, "%.*s", (int)request->name2_length,
			(const char *)request->name2);
		return result(symlinkat(text, below, path));
	case BICKFORD_OP_RENAME:
		return result(renameat2(below, path, below, path2, request->flags));
	default:
		if (path != NULL)
			return result(linkat(below, path, below, path2, 0));
		CHECK(is_file(request));
		snprintf(text, sizeof text, "/proc/self/fd/%d", (int)request->handle);
		return result(linkat(AT_FDCWD, text, below, path2, AT_SYMLINK_FOLLOW));
	}
}

static int32_t ranges(const bickford_request *request, bickford_answer *answer)
{
	off_t from = (off_t)request->offset, to = (off_t)request->offset2;
	int file = (int)request->handle;

	CHECK(is_file(request));
	switch (request->operation) {
	case BICKFORD_OP_FALLOCATE:
		return result(fallocate(file, (int)request->flags, from, (off_t)request->size));
	case BICKFORD_OP_LSEEK:
		return counted(answer, lseek(file, from, (int)request->flags));
	case BICKFORD_OP_COPY_FILE_RANGE:
		return counted(answer,
			copy_file_range(file, &from, (int)request->handle2, &to, request->size, 0));
	default:
		return counted(answer, pwrite(file, request->data, request->size, from));
	}
}

static int32_t statistics(bickford_answer *answer)
{
	struct statvfs found;

	if (fstatvfs(below, &found) != 0)
		return errno;
	answer->statfs.blocks = found.f_blocks;
	answer->statfs.blocks_free = found.f_bfree;
	answer->statfs.available = found.f_bavail;
	answer->statfs.files = 4711;
	return 0;
}

static int32_t with_birth(const bickford_request *request, bickford_answer *answer)
{
	answer->has_born = 1;
	answer->born.seconds = 123456789;
	CHECK((request->flags2 & STATX_BTIME) != 0);
	return get_attr(request, answer);
}

static int is_later(const bickford_request *request)
{
	return request->path != NULL && strncmp(request->path, "/later", 6) == 0;
}

static int32_t dispatch(void *user, const bickford_request *request, bickford_answer *answer,
	bickford_reply *reply)
{
	(void)user;
	__atomic_fetch_add(&seen[request->operation], 1, __ATOMIC_SEQ_CST);
	CHECK(__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST) == 0);
	CHECK(request->path == NULL ||
		(request->path[0] == '/' && strlen(request->path) == request->path_length));
	CHECK(request->path2 == NULL || strlen(request->path2) == request->path2_length);
	CHECK(request->node == 0);
	switch (request->operation) {
	case BICKFORD_OP_GETATTR:
		return get_attr(request, answer);
	case BICKFORD_OP_SETATTR:
		return set_attr(request);
	case BICKFORD_OP_READLINK:
		return measured(answer, readlinkat(below, relative(request->path), (char *)answer->data,
			answer->data_capacity));
	case BICKFORD_OP_MKNOD:
	case BICKFORD_OP_MKDIR:
	case BICKFORD_OP_UNLINK:
	case BICKFORD_OP_RMDIR:
	case BICKFORD_OP_SYMLINK:
	case BICKFORD_OP_RENAME:
	case BICKFORD_OP_LINK:
		return change_names(request);
	case BICKFORD_OP_OPEN:
	case BICKFORD_OP_CREATE:
	case BICKFORD_OP_TMPFILE:
	case BICKFORD_OP_OPENDIR:
		return open_file(request, answer);
	case BICKFORD_OP_RELEASE:
	case BICKFORD_OP_RELEASEDIR:
		return result(close((int)request->handle));
	case BICKFORD_OP_READ:
		if (is_later(request))
			return defer(request, reply);
		return measured(answer, pread((int)request->handle, answer->data, request->size,
			(off_t)request->offset));
	case BICKFORD_OP_READDIR:
		if (request->path != NULL && strcmp(request->path, "/parts") == 0)
			return list_parts(request, reply);
		if (request->path != NULL && strcmp(request->path, "/entries") == 0)
			return list_entries(request, reply);
		return is_later(request) ? defer(request, reply) : list(request, reply);
	case BICKFORD_OP_SETXATTR:
	case BICKFORD_OP_GETXATTR:
	case BICKFORD_OP_LISTXATTR:
	case BICKFORD_OP_REMOVEXATTR:
		return xattr(request, answer);
	case BICKFORD_OP_GETLK:
		return lock(request, answer);
	case BICKFORD_OP_SETLK:
		if (request->flags2 & 1)
			return result(flock((int)request->handle,
				(request->lock_kind == 0 ? LOCK_SH : request->lock_kind == 1 ? LOCK_EX : LOCK_UN) |
					LOCK_NB));
		return lock(request, answer);
	case BICKFORD_OP_FSYNC:
	case BICKFORD_OP_FSYNCDIR:
		return result(request->flags2 & 1 ? fdatasync((int)request->handle) :
			fsync((int)request->handle));
	case BICKFORD_OP_FALLOCATE:
	case BICKFORD_OP_LSEEK:
	case BICKFORD_OP_COPY_FILE_RANGE:
	case BICKFORD_OP_WRITE:
		return ranges(request, answer);
	case BICKFORD_OP_STATFS:
		return statistics(answer);
	case BICKFORD_OP_STATX:
		return with_birth(request, answer);
	case BICKFORD_OP_ACCESS:
		return result(faccessat(below, relative(request->path), (int)request->flags, 0));
	case BICKFORD_OP_IOCTL:
		return control(request, answer);
	case BICKFORD_OP_POLL:
		answer->count = POLLIN | POLLPRI;
		return 0;
	case BICKFORD_OP_FLUSH:
	case BICKFORD_OP_SYNCFS:
		return 0;
	case BICKFORD_OP_DESTROY:
		__atomic_store_n(&destroyed, 1, __ATOMIC_SEQ_CST);
		return 0;
	default:
		return ENOSYS;
	}
}
