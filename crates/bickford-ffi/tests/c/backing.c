/* Kernel pass-through: `backing MOUNTPOINT DIRECTORY` mounts a file system over each transport whose file `now` is
 * a file of the directory, registered during the callback, and `later` another one, registered by a thread
 * that completes the open; no data come by a request. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bickford.h"
#include "check.h"

#define FOPEN_PASSTHROUGH (1 << 7)
#define FUSE_PASSTHROUGH (UINT64_C(1) << 37)
#define NOW 2
#define LATER 3

static const char *const names[] = {"", "", "now", "later"};
static const char before[] = "below", after[] = "above";

struct state {
	const char *directory;
	uint64_t data, refused, backing[4];
};

static int lower(const struct state *state, uint64_t node, int flags)
{
	char path[4096];

	snprintf(path, sizeof path, "%s/%s", state->directory, names[node]);
	return open(path, flags | O_CREAT, 0644);
}

/* Only the kernel orders the thread that registers before the one whose open that answers. */
static void keep_backing(struct state *state, uint64_t node, uint64_t number)
{
	__atomic_store_n(&state->backing[node], number, __ATOMIC_SEQ_CST);
}

static uint64_t backing(struct state *state, uint64_t node)
{
	return __atomic_load_n(&state->backing[node], __ATOMIC_SEQ_CST);
}

struct later {
	struct state *state;
	uint64_t handle;
};

static void *open_later(void *argument)
{
	struct later *later = argument;
	struct state *state = later->state;
	int file = lower(state, LATER, O_RDWR);
	uint64_t number;
	bickford_answer answer;

	CHECK(bickford_deferred_answer(later->handle, &answer) == 0);
	CHECK(bickford_deferred_open_backing(later->handle, file, NULL) == BICKFORD_ERROR_ARGUMENT);
	answer.backing = bickford_deferred_open_backing(later->handle, file, &number);
	CHECK(answer.backing > 0);
	keep_backing(state, LATER, number);
	close(file);
	answer.open_flags = FOPEN_PASSTHROUGH;
	CHECK(bickford_deferred_complete(later->handle, 0, &answer) == 0);
	CHECK(bickford_deferred_open_backing(later->handle, 0, &number) == BICKFORD_ERROR_HANDLE);
	free(later);
	return NULL;
}

static int32_t open_file(struct state *state, uint64_t node, bickford_answer *answer,
	bickford_reply *reply)
{
	uint64_t number;
	int file;

	if (node == LATER) {
		struct later *later = malloc(sizeof *later);
		pthread_t thread;

		CHECK(later != NULL);
		later->state = state;
		CHECK(bickford_reply_defer(reply, &later->handle) == 0);
		/* It is still the reply of this call. */
		CHECK(bickford_reply_open_backing(reply, -1, &number) == BICKFORD_ERROR_ARGUMENT);
		CHECK(pthread_create(&thread, NULL, open_later, later) == 0);
		pthread_detach(thread);
		return BICKFORD_LATER;
	}
	CHECK(bickford_reply_open_backing(reply, -1, &number) == BICKFORD_ERROR_ARGUMENT);
	file = open(state->directory, O_RDONLY | O_DIRECTORY);
	CHECK(bickford_reply_open_backing(reply, file, &number) == BICKFORD_ERROR_SYSTEM);
	close(file);
	file = lower(state, node, O_RDWR);
	answer->backing = bickford_reply_open_backing(reply, file, &number);
	close(file);
	if (answer->backing == BICKFORD_ERROR_SYSTEM) {
		CHECK(strstr(bickford_last_error(), "Linux 6.9") != NULL);
		__atomic_fetch_add(&state->refused, 1, __ATOMIC_SEQ_CST);
		return ENOTSUP;
	}
	CHECK(answer->backing > 0);
	keep_backing(state, node, number);
	answer->open_flags = FOPEN_PASSTHROUGH;
	return 0;
}

static int32_t dispatch(void *user, const bickford_request *request, bickford_answer *answer,
	bickford_reply *reply)
{
	struct state *state = user;
	uint64_t node = request->node;

	switch (request->operation) {
	case BICKFORD_OP_LOOKUP:
		for (node = NOW; node <= LATER; node++)
			if (request->name_length == strlen(names[node]) &&
			    memcmp(request->name, names[node], request->name_length) == 0)
				break;
		if (node > LATER)
			return ENOENT;
		answer->node = node;
		/* fall through */
	case BICKFORD_OP_GETATTR:
		answer->attr.ino = node;
		answer->attr.links = 1;
		answer->attr.mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0644;
		answer->attr.size = node == 1 ? 0 : sizeof before - 1;
		return 0;
	case BICKFORD_OP_OPEN:
		return open_file(state, node, answer, reply);
	default:
		__atomic_fetch_add(&state->data, 1, __ATOMIC_SEQ_CST);
		return EIO;
	}
}

static void check_file(struct state *state, const char *mountpoint, uint64_t node)
{
	char path[4096], content[64] = "";
	int file = lower(state, node, O_RDWR | O_TRUNC);

	CHECK(write(file, before, sizeof before - 1) == sizeof before - 1);
	snprintf(path, sizeof path, "%s/%s", mountpoint, names[node]);
	{
		int mounted = open(path, O_RDWR);

		CHECK(mounted >= 0);
		CHECK(pread(mounted, content, sizeof content, 0) == sizeof before - 1);
		CHECK(strcmp(content, before) == 0);
		/* What is open keeps the backing file. */
		CHECK(bickford_backing_close(backing(state, node)) == 0);
		CHECK(bickford_backing_close(backing(state, node)) == BICKFORD_ERROR_HANDLE);
		CHECK(pwrite(mounted, after, sizeof after - 1, 0) == sizeof after - 1);
		CHECK(close(mounted) == 0);
	}
	CHECK(pread(file, content, sizeof content, 0) == sizeof after - 1);
	CHECK(strcmp(content, after) == 0);
	close(file);
}

/* Whether this kernel has pass-through. */
static int check(const char *mountpoint, const char *directory, const char *options)
{
	struct state state = {.directory = directory};
	bickford_callbacks callbacks = {
		.user = &state,
		.operations = BIT(BICKFORD_OP_LOOKUP) | BIT(BICKFORD_OP_GETATTR) |
			BIT(BICKFORD_OP_OPEN) | BIT(BICKFORD_OP_READ) | BIT(BICKFORD_OP_WRITE),
		.dispatch = dispatch,
	};
	bickford_negotiated negotiated;
	char path[4096];
	uint64_t session;
	int allowed = strstr(options, "max_stack_depth") != NULL, passed;

	CHECK(bickford_mount(mountpoint, options, NULL, &callbacks, &session) == 0);
	CHECK(bickford_session_negotiated(session, &negotiated) == 0);
	passed = (negotiated.flags & FUSE_PASSTHROUGH) != 0;
	if (!allowed) {
		snprintf(path, sizeof path, "%s/%s", mountpoint, names[NOW]);
		CHECK(!passed && open(path, O_RDONLY) == -1 && errno == ENOTSUP);
		CHECK(__atomic_load_n(&state.refused, __ATOMIC_SEQ_CST) == 1);
	} else if (passed) {
		check_file(&state, mountpoint, NOW);
		check_file(&state, mountpoint, LATER);
		/* This one is left to the end of the session. */
		snprintf(path, sizeof path, "%s/%s", mountpoint, names[NOW]);
		close(open(path, O_RDONLY));
		CHECK(__atomic_load_n(&state.data, __ATOMIC_SEQ_CST) == 0);
	}
	CHECK(bickford_session_unmount(session, BICKFORD_UNMOUNT_LAZY) == 0);
	CHECK(bickford_session_wait(session, -1) == 0);
	CHECK(bickford_session_close(session) == 0);
	if (passed)
		CHECK(bickford_backing_close(backing(&state, NOW)) == BICKFORD_ERROR_HANDLE);
	return passed;
}

int main(int argc, char **argv)
{
	int have, before_all;

	CHECK(argc == 3);
	CHECK(bickford_backing_close(4711) == BICKFORD_ERROR_HANDLE);
	check(argv[1], argv[2], "transport=dev");
	have = check(argv[1], argv[2], "transport=dev,max_stack_depth=1");
	before_all = descriptors();
	check(argv[1], argv[2], "transport=auto,max_stack_depth=2");
	for (int tries = 0; descriptors() > before_all; tries++) {
		CHECK(tries < 1000);
		usleep(10000);
	}
	puts(have ? "backing: all is well" : "backing: skipped, for this kernel has no pass-through");
	return 0;
}
