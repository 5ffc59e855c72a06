/* READ answered from descriptors: `range MOUNTPOINT DIRECTORY` serves files of DIRECTORY over inodes and over paths, each READ of
 * `now` in its callback, of `later` by a thread, and of `closed` from a descriptor that cannot be read. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bickford.h"
#include "check.h"

#define FOPEN_DIRECT_IO (1 << 0)
#define NOW 2
#define LATER 3
#define CLOSED 4
/* More than is copied, and not whole pages. */
#define LENGTH 200001

static const char *const names[] = {"", "", "now", "later", "closed"};
static const char *directory;

static int lower(uint64_t file, int flags)
{
	char path[4096];

	snprintf(path, sizeof path, "%s/%s", directory, names[file]);
	return open(path, flags, 0644);
}

/* Which file a name is; one too many for what is none. */
static uint64_t named(const char *name, size_t length)
{
	uint64_t file;

	for (file = NOW; file <= CLOSED; file++)
		if (length == strlen(names[file]) && memcmp(name, names[file], length) == 0)
			break;
	return file;
}

struct later {
	uint64_t reply, offset;
	int file;
};

static void *read_later(void *argument)
{
	struct later later = *(struct later *)argument;
	bickford_answer answer;

	free(argument);
	CHECK(bickford_deferred_answer(later.reply, &answer) == 0);
	CHECK(bickford_deferred_range(later.reply, -1, 0, 1) == BICKFORD_ERROR_ARGUMENT);
	CHECK(bickford_deferred_range(later.reply, later.file, 0, 1) == 0);
	CHECK(bickford_deferred_range(later.reply, later.file, later.offset, UINT64_MAX) == 0);
	CHECK(bickford_deferred_complete(later.reply, 0, &answer) == 0);
	CHECK(bickford_deferred_range(later.reply, later.file, 0, 1) == BICKFORD_ERROR_HANDLE);
	return NULL;
}

static int32_t read_file(uint64_t file, const bickford_request *request, bickford_reply *reply)
{
	int below = (int)request->handle;

	CHECK(bickford_reply_range(reply, -1, 0, 1) == BICKFORD_ERROR_ARGUMENT);
	if (file == LATER) {
		struct later *later = malloc(sizeof *later);
		pthread_t thread;

		CHECK(later != NULL);
		*later = (struct later){.offset = request->offset, .file = below};
		CHECK(bickford_reply_defer(reply, &later->reply) == 0);
		CHECK(bickford_reply_range(reply, below, 0, 1) == BICKFORD_ERROR_ARGUMENT);
		CHECK(pthread_create(&thread, NULL, read_later, later) == 0);
		pthread_detach(thread);
		return BICKFORD_LATER;
	}
	CHECK(bickford_reply_range(reply, below, request->offset, request->size) == 0);
	return 0;
}

static int32_t dispatch(void *user, const bickford_request *request, bickford_answer *answer,
	bickford_reply *reply)
{
	uint64_t file = request->node;

	(void)user;
	if (request->operation == BICKFORD_OP_LOOKUP)
		file = named((const char *)request->name, request->name_length);
	else if (request->path != NULL)
		file = strcmp(request->path, "/") == 0 ? 1 :
			named(request->path + 1, request->path_length - 1);
	switch (request->operation) {
	case BICKFORD_OP_LOOKUP:
	case BICKFORD_OP_GETATTR:
		CHECK(bickford_reply_range(reply, 0, 0, 1) == BICKFORD_ERROR_ARGUMENT);
		CHECK(strstr(bickford_last_error(), "only READ") != NULL);
		if (file > CLOSED)
			return ENOENT;
		answer->node = answer->attr.ino = file;
		answer->attr.links = 1;
		answer->attr.mode = file == 1 ? S_IFDIR | 0755 : S_IFREG | 0644;
		answer->attr.size = file == 1 ? 0 : LENGTH;
		return 0;
	case BICKFORD_OP_OPEN:
		answer->handle = (uint64_t)lower(file, file == CLOSED ? O_WRONLY : O_RDWR);
		answer->open_flags = FOPEN_DIRECT_IO;
		return 0;
	case BICKFORD_OP_RELEASE:
		return close((int)request->handle) == 0 ? 0 : errno;
	default:
		return read_file(file, request, reply);
	}
}

static int open_mounted(const char *mountpoint, uint64_t file)
{
	char path[4096];
	int opened;

	snprintf(path, sizeof path, "%s/%s", mountpoint, names[file]);
	opened = open(path, O_RDONLY);
	CHECK(opened >= 0);
	return opened;
}

static void check_file(const char *mountpoint, uint64_t file)
{
	static const struct {
		off_t offset;
		size_t size;
	} parts[] = {{0, LENGTH}, {5, 150000}, {4096, 10}, {LENGTH - 3, 100}, {LENGTH + 1, 100}};
	static uint8_t data[LENGTH];
	int opened = open_mounted(mountpoint, file);

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		off_t rest = parts[i].offset < LENGTH ? LENGTH - parts[i].offset : 0;
		ssize_t wanted = rest < (off_t)parts[i].size ? rest : (ssize_t)parts[i].size;

		CHECK(pread(opened, data, parts[i].size, parts[i].offset) == wanted);
		for (ssize_t at = 0; at < wanted; at++)
			CHECK(data[at] == (uint8_t)((parts[i].offset + at) % 251));
	}
	CHECK(close(opened) == 0);
}

/* The process that serves keeps its locks of fcntl(2). */
static void check_locks(const char *mountpoint)
{
	int locking = lower(NOW, O_RDWR), looking = lower(NOW, O_RDWR);
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	int opened = open_mounted(mountpoint, NOW);
	uint8_t data[10];

	CHECK(fcntl(locking, F_SETLK, &lock) == 0);
	CHECK(pread(opened, data, sizeof data, 0) == sizeof data);
	lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	CHECK(fcntl(looking, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_WRLCK && lock.l_pid > 0);
	CHECK(close(opened) == 0 && close(looking) == 0 && close(locking) == 0);
}

static void check(const char *mountpoint, const char *options, int over_paths)
{
	bickford_callbacks callbacks = {
		.operations = BIT(BICKFORD_OP_LOOKUP) | BIT(BICKFORD_OP_GETATTR) | BIT(BICKFORD_OP_OPEN) |
			BIT(BICKFORD_OP_READ) | BIT(BICKFORD_OP_RELEASE),
		.dispatch = dispatch,
	};
	uint64_t session;
	uint8_t data[10];
	int opened;

	if (over_paths)
		CHECK(bickford_mount_paths(mountpoint, options, NULL, &callbacks, &session) == 0);
	else
		CHECK(bickford_mount(mountpoint, options, NULL, &callbacks, &session) == 0);
	check_file(mountpoint, NOW);
	check_file(mountpoint, LATER);
	check_locks(mountpoint);
	opened = open_mounted(mountpoint, CLOSED);
	CHECK(pread(opened, data, sizeof data, 0) == -1 && errno == EBADF);
	CHECK(close(opened) == 0);
	CHECK(bickford_session_unmount(session, BICKFORD_UNMOUNT_LAZY) == 0);
	CHECK(bickford_session_wait(session, -1) == 0);
	CHECK(bickford_session_close(session) == 0);
}

int main(int argc, char **argv)
{
	static uint8_t data[LENGTH];

	CHECK(argc == 3);
	directory = argv[2];
	for (size_t at = 0; at < LENGTH; at++)
		data[at] = (uint8_t)(at % 251);
	for (uint64_t file = NOW; file <= CLOSED; file++) {
		int made = lower(file, O_WRONLY | O_CREAT);

		CHECK(made >= 0 && write(made, data, LENGTH) == LENGTH && close(made) == 0);
	}
	CHECK(bickford_reply_range(NULL, 0, 0, 1) == BICKFORD_ERROR_ARGUMENT);
	CHECK(bickford_deferred_range(4711, 0, 0, 1) == BICKFORD_ERROR_HANDLE);
	for (int over_paths = 0; over_paths < 2; over_paths++) {
		check(argv[1], "transport=dev", over_paths);
		check(argv[1], "transport=auto", over_paths);
	}
	check(argv[1], "transport=dev,at_once", 1);
	return 0;
}
