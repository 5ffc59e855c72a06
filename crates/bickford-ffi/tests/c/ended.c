/* Replies that are still owed when their session ends: `ended MOUNTPOINT DIRECTORY` mounts a file system over
 * each transport whose one file is never read to the end, and aborts it; DIRECTORY is not used. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bickford.h"
#include "check.h"

#define SIZE 4096

static uint64_t owed;

static int32_t dispatch(void *user, const bickford_request *request, bickford_answer *answer,
	bickford_reply *reply)
{
	uint64_t handle;

	(void)user;
	if (request->operation == BICKFORD_OP_READ) {
		if (bickford_reply_defer(reply, &handle) != 0)
			return EIO;
		__atomic_store_n(&owed, handle, __ATOMIC_SEQ_CST);
		return BICKFORD_LATER;
	}
	answer->node = request->operation == BICKFORD_OP_LOOKUP ? 2 : request->node;
	answer->attr.ino = answer->node;
	answer->attr.links = 1;
	answer->attr.mode = answer->node == 1 ? S_IFDIR | 0755 : S_IFREG | 0644;
	answer->attr.size = SIZE;
	return 0;
}

static void *read_file(void *mountpoint)
{
	char path[4096], content[SIZE];
	int file;

	snprintf(path, sizeof path, "%s/file", (const char *)mountpoint);
	file = open(path, O_RDONLY);
	CHECK(file >= 0);
	CHECK(read(file, content, sizeof content) < 0);
	close(file);
	return NULL;
}

/* Answers with the number of a reply that is owed still. */
static uint64_t end_early(char *mountpoint, const char *options)
{
	bickford_callbacks callbacks = {
		.operations = BIT(BICKFORD_OP_LOOKUP) | BIT(BICKFORD_OP_GETATTR) | BIT(BICKFORD_OP_READ),
		.dispatch = dispatch,
	};
	uint64_t session, handle;
	pthread_t reader;

	__atomic_store_n(&owed, 0, __ATOMIC_SEQ_CST);
	CHECK(bickford_mount(mountpoint, options, NULL, &callbacks, &session) == 0);
	CHECK(pthread_create(&reader, NULL, read_file, mountpoint) == 0);
	while ((handle = __atomic_load_n(&owed, __ATOMIC_SEQ_CST)) == 0)
		usleep(1000);
	CHECK(bickford_deferred_interrupted(handle) == 0);
	CHECK(bickford_session_unmount(session, BICKFORD_UNMOUNT_FORCE) == 0);
	CHECK(bickford_session_wait(session, -1) == 0);
	CHECK(bickford_session_close(session) == 0);
	pthread_join(reader, NULL);
	return handle;
}

static void check(char *mountpoint, const char *options)
{
	int before = descriptors(), tries = 0;
	uint64_t handle = end_early(mountpoint, options);
	bickford_answer answer;

	/* A thread that waited for the end may be about to close the last one. */
	while (descriptors() > before) {
		CHECK(tries++ < 1000);
		usleep(10000);
	}
	CHECK(bickford_deferred_interrupted(handle) == 1);
	CHECK(bickford_deferred_answer(handle, &answer) == 0 && answer.data_capacity >= SIZE);
	memset(answer.data, 'x', SIZE);
	answer.data_length = SIZE;
	CHECK(bickford_deferred_complete(handle, 0, &answer) == 0);
	CHECK(bickford_deferred_complete(handle, 0, &answer) == BICKFORD_ERROR_HANDLE);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	/* What the library opens once. */
	bickford_deferred_complete(end_early(argv[1], "transport=dev"), EIO, NULL);
	check(argv[1], "transport=dev");
	check(argv[1], "transport=auto");
	puts("ended: all is well");
	return 0;
}
