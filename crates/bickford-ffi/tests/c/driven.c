/* Sessions that their caller serves: `driven MOUNTPOINT DIRECTORY` has an event loop, in which all callbacks are called, while
 * another thread uses the mount. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bickford.h"
#include "check.h"

#define FOPEN_DIRECT_IO (1 << 0)

static const char text[] = "in an event loop\n";
static const char *mountpoint;
static pthread_t loop;
static uint64_t session;
/* A READ that the loop completes when it has handled what came. */
static uint64_t owed;
static int destroyed;

static int32_t dispatch(void *user, const bickford_request *request, bickford_answer *answer,
	bickford_reply *reply)
{
	int file = request->node == 2;

	(void)user;
	CHECK(pthread_equal(pthread_self(), loop));
	if (request->operation == BICKFORD_OP_LOOKUP)
		file = request->name_length == 4 && memcmp(request->name, "file", 4) == 0;
	else if (request->path != NULL)
		file = strcmp(request->path, "/file") == 0;
	switch (request->operation) {
	case BICKFORD_OP_LOOKUP:
	case BICKFORD_OP_GETATTR:
		if (!file && (request->operation == BICKFORD_OP_LOOKUP ||
			(request->path != NULL && strcmp(request->path, "/") != 0)))
			return ENOENT;
		answer->node = answer->attr.ino = file ? 2 : 1;
		answer->attr.links = 1;
		answer->attr.mode = file ? S_IFREG | 0644 : S_IFDIR | 0755;
		answer->attr.size = file ? sizeof text - 1 : 0;
		return 0;
	case BICKFORD_OP_OPEN:
		answer->open_flags = FOPEN_DIRECT_IO;
		return 0;
	case BICKFORD_OP_READ:
		CHECK(owed == 0 && request->offset == 0 && bickford_reply_defer(reply, &owed) == 0);
		return BICKFORD_LATER;
	case BICKFORD_OP_DESTROY:
		destroyed++;
		return 0;
	default:
		return ENOSYS;
	}
}

static void complete(void)
{
	uint64_t reply = owed;
	bickford_answer answer;

	if (reply == 0)
		return;
	owed = 0;
	CHECK(bickford_deferred_answer(reply, &answer) == 0);
	memcpy(answer.data, text, sizeof text - 1);
	answer.data_length = sizeof text - 1;
	CHECK(bickford_deferred_complete(reply, 0, &answer) == 0);
}

static int wait_for_requests(void)
{
	struct pollfd waits = {.fd = bickford_session_fd(session), .events = POLLIN};
	int served;

	CHECK(waits.fd >= 0 && poll(&waits, 1, -1) == 1);
	while ((served = bickford_session_serve_one(session)) == 1)
		;
	complete();
	return served;
}

static void *use(void *argument)
{
	char path[4096], content[64] = "";
	struct stat found;
	int file;

	snprintf(path, sizeof path, "%s/absent", mountpoint);
	CHECK(stat(path, &found) == -1 && errno == ENOENT);
	snprintf(path, sizeof path, "%s/file", mountpoint);
	file = open(path, O_RDONLY);
	CHECK(file >= 0 && pread(file, content, sizeof content, 0) == sizeof text - 1);
	CHECK(strcmp(content, text) == 0 && close(file) == 0);
	CHECK(bickford_session_unmount(session, BICKFORD_UNMOUNT_NORMAL) == 0);
	CHECK(bickford_session_wait(session, -1) == 0);
	return argument;
}

static void mount_it(const char *options, int over_paths)
{
	bickford_callbacks callbacks = {.operations = UINT64_MAX, .dispatch = dispatch};

	destroyed = 0;
	if (over_paths)
		CHECK(bickford_mount_paths(mountpoint, options, NULL, &callbacks, &session) == 0);
	else
		CHECK(bickford_mount(mountpoint, options, NULL, &callbacks, &session) == 0);
}

static void check(int over_paths)
{
	pthread_t user;

	mount_it("driven", over_paths);
	CHECK(pthread_create(&user, NULL, use, NULL) == 0);
	while (wait_for_requests() == 0)
		;
	CHECK(bickford_session_serve_one(session) == BICKFORD_ENDED && destroyed == 1);
	CHECK(pthread_join(user, NULL) == 0);
	CHECK(bickford_session_close(session) == 0);
	CHECK(bickford_session_serve_one(session) == BICKFORD_ERROR_HANDLE);
	CHECK(bickford_session_fd(session) == BICKFORD_ERROR_HANDLE);
}

static void *close_it(void *argument)
{
	loop = pthread_self();
	CHECK(bickford_session_close(session) == 0 && destroyed == 1);
	return argument;
}

/* Unmounting has the kernel ask for the end of a block device, and no signal ends that. */
static void close_a_block_device(const char *directory)
{
	char text[8192], device[64] = "";
	struct timespec deadline;
	int64_t connection;
	pthread_t closes;
	FILE *pipe;

	snprintf(text, sizeof text, "truncate -s 1M '%s/image' && losetup -f --show '%s/image'",
		directory, directory);
	pipe = popen(text, "r");
	CHECK(pipe != NULL);
	if (fgets(device, sizeof device, pipe) == NULL) {
		pclose(pipe);
		fprintf(stderr, "left out: no loop devices\n");
		return;
	}
	pclose(pipe);
	device[strcspn(device, "\n")] = '\0';
	snprintf(text, sizeof text, "driven,blkdev,fsname=%s", device);
	mount_it(text, 0);
	/* It goes with its last use. */
	snprintf(text, sizeof text, "losetup -d %s", device);
	CHECK(system(text) == 0);
	connection = bickford_session_connection(session);
	CHECK(pthread_create(&closes, NULL, close_it, NULL) == 0);
	CHECK(clock_gettime(CLOCK_REALTIME, &deadline) == 0);
	deadline.tv_sec += 30;
	if (pthread_timedjoin_np(closes, NULL, &deadline) != 0) {
		snprintf(text, sizeof text, "echo 1 >/sys/fs/fuse/connections/%lld/abort",
			(long long)connection);
		CHECK(system(text) == 0);
		CHECK(!"it waits for itself");
	}
}

int main(int argc, char **argv)
{
	bickford_callbacks callbacks = {.dispatch = dispatch};
	int before;

	CHECK(argc == 3);
	mountpoint = argv[1];
	loop = pthread_self();
	CHECK(bickford_mount(mountpoint, "driven,transport=uring", NULL, &callbacks, &session) ==
		BICKFORD_ERROR_SYSTEM);
	CHECK(strstr(bickford_last_error(), "over /dev/fuse") != NULL);
	CHECK(bickford_mount(mountpoint, NULL, NULL, &callbacks, &session) == 0);
	CHECK(bickford_session_fd(session) == BICKFORD_ERROR_ARGUMENT);
	CHECK(bickford_session_serve_one(session) == BICKFORD_ERROR_ARGUMENT);
	CHECK(bickford_session_unmount(session, BICKFORD_UNMOUNT_LAZY) == 0);
	CHECK(bickford_session_wait(session, -1) == 0 && bickford_session_close(session) == 0);
	before = descriptors();
	check(0);
	check(1);
	/* Closed, one that nobody serves ends. */
	mount_it("driven", 0);
	CHECK(bickford_session_close(session) == 0 && destroyed == 1);
	close_a_block_device(argv[2]);
	for (int tries = 0; descriptors() > before; tries++) {
		CHECK(tries < 1000);
		usleep(10000);
	}
	return 0;
}
