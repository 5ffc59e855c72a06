/* A hello file system over the C interface, and its user: `hello MOUNTPOINT DIRECTORY` mounts it, looks
 * at it and unmounts it; DIRECTORY is not used. Files: `hello`, answered at once, and `later`, answered by another thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bickford.h"
#include "check.h"

static const char text[] = "Hello, world!\n";
static const char *const names[] = {".", "..", "hello", "later"};

static int second_completion = 1;

static void fill_attr(bickford_answer *answer, uint64_t node)
{
	answer->attr.ino = node;
	answer->attr.links = 1;
	answer->attr.mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0644;
	answer->attr.size = node == 1 ? 0 : sizeof text - 1;
	answer->attr_valid = UINT64_C(1000000000);
	answer->entry_valid = UINT64_C(1000000000);
}

static void *complete_later(void *argument)
{
	uint64_t handle = *(uint64_t *)argument;
	bickford_answer answer;

	free(argument);
	if (bickford_deferred_answer(handle, &answer) == 0 &&
	    bickford_deferred_interrupted(handle) == 0 &&
	    bickford_deferred_changed(handle, 4) == 0 && answer.data_capacity >= sizeof text - 1) {
		memcpy(answer.data, text, sizeof text - 1);
		answer.data_length = sizeof text - 1;
		if (bickford_deferred_complete(handle, 0, &answer) == 0)
			__atomic_store_n(&second_completion,
				bickford_deferred_complete(handle, EIO, NULL), __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static int32_t read_file(const bickford_request *request, bickford_answer *answer,
	bickford_reply *reply)
{
	if (request->node == 4) {
		pthread_t thread;
		uint64_t *handle = malloc(sizeof *handle);

		if (handle == NULL || bickford_reply_defer(reply, handle) != 0 ||
		    pthread_create(&thread, NULL, complete_later, handle) != 0)
			return EIO;
		pthread_detach(thread);
		return BICKFORD_LATER;
	}
	if (request->offset < sizeof text - 1) {
		size_t length = sizeof text - 1 - request->offset;

		if (length > request->size)
			length = request->size;
		memcpy(answer->data, text + request->offset, length);
		answer->data_length = length;
	}
	return 0;
}

static int32_t dispatch(void *user, const bickford_request *request, bickford_answer *answer,
	bickford_reply *reply)
{
	__atomic_fetch_add((uint64_t *)user, 1, __ATOMIC_SEQ_CST);
	switch (request->operation) {
	case BICKFORD_OP_LOOKUP:
		for (uint64_t i = 2; i < 4; i++)
			if (request->node == 1 && request->name_length == strlen(names[i]) &&
			    memcmp(request->name, names[i], request->name_length) == 0) {
				answer->node = i + 1;
				fill_attr(answer, i + 1);
				CHECK(bickford_reply_changed(reply, i + 1) == 0);
				return 0;
			}
		return ENOENT;
	case BICKFORD_OP_GETATTR:
		fill_attr(answer, request->node);
		return 0;
	case BICKFORD_OP_READDIR:
		for (uint64_t i = request->offset; i < 4; i++)
			if (bickford_listing_add(answer, (const uint8_t *)names[i], strlen(names[i]),
				i < 2 ? 1 : i + 1, i + 1, i < 2 ? S_IFDIR : S_IFREG) != 1)
				break;
		return 0;
	case BICKFORD_OP_READ:
		return read_file(request, answer, reply);
	default:
		return ENOSYS;
	}
}

static void check_file(const char *mountpoint, const char *name)
{
	char path[4096], content[64] = "";
	int file;

	snprintf(path, sizeof path, "%s/%s", mountpoint, name);
	file = open(path, O_RDONLY);
	CHECK(file >= 0);
	CHECK(read(file, content, sizeof content) == sizeof text - 1);
	CHECK(memcmp(content, text, sizeof text - 1) == 0);
	CHECK(close(file) == 0);
}

static void check_errors(const char *mountpoint)
{
	bickford_config config = {.abi_version = BICKFORD_ABI_VERSION + 1};
	bickford_callbacks callbacks = {.dispatch = dispatch};
	uint64_t session;

	CHECK(bickford_abi_version() == BICKFORD_ABI_VERSION);
	CHECK(bickford_mount(NULL, NULL, NULL, &callbacks, &session) == BICKFORD_ERROR_ARGUMENT);
	CHECK(bickford_mount(mountpoint, NULL, &config, &callbacks, &session) ==
		BICKFORD_ERROR_ARGUMENT);
	CHECK(strstr(bickford_last_error(), "version") != NULL);
	CHECK(bickford_mount(mountpoint, "no_such_option", NULL, &callbacks, &session) ==
		BICKFORD_ERROR_ARGUMENT);
	CHECK(strstr(bickford_last_error(), "no_such_option") != NULL);
	CHECK(bickford_mount(mountpoint, "foreground_only", NULL, &callbacks, &session) ==
		BICKFORD_ERROR_ARGUMENT);
	CHECK(strstr(bickford_last_error(), "foreground_only") != NULL);
	CHECK(bickford_session_wait(4711, 0) == BICKFORD_ERROR_HANDLE);
	CHECK(bickford_deferred_complete(4711, EIO, NULL) == BICKFORD_ERROR_HANDLE);
}

int main(int argc, char **argv)
{
	uint64_t session = 0, calls = 0;
	bickford_config config = {.abi_version = BICKFORD_ABI_VERSION, .workers = 2};
	bickford_callbacks callbacks = {
		.user = &calls,
		.operations = BIT(BICKFORD_OP_LOOKUP) | BIT(BICKFORD_OP_GETATTR) |
			BIT(BICKFORD_OP_READDIR) | BIT(BICKFORD_OP_READ),
		.dispatch = dispatch,
	};
	bickford_negotiated negotiated;
	struct dirent *entry;
	int entries = 0;
	DIR *directory;

	CHECK(argc == 3);
	check_errors(argv[1]);
	CHECK(bickford_mount(argv[1], "fsname=hello,ro,prompt", &config, &callbacks, &session) == 0);
	CHECK(bickford_session_connection(session) > 0);
	CHECK(bickford_session_negotiated(session, &negotiated) == 0 && negotiated.max_write >= 4096);
	directory = opendir(argv[1]);
	CHECK(directory != NULL);
	while ((entry = readdir(directory)) != NULL)
		CHECK(entries < 4 && strcmp(entry->d_name, names[entries++]) == 0);
	CHECK(entries == 4);
	closedir(directory);
	check_file(argv[1], "hello");
	check_file(argv[1], "later");
	CHECK(bickford_notify_inode(session, 3, 0, 0) == 0);
	CHECK(bickford_notify_attributes(session, 3) == 0);
	CHECK(bickford_notify_entry(session, 1, (const uint8_t *)"hello", 5, 0) == 0);
	CHECK(bickford_notify_flush(session) == 0);
	check_file(argv[1], "hello");
	CHECK(bickford_session_wait(session, 0) == BICKFORD_ERROR_TIMEOUT);
	/* The kernel may still be about to release the last file, which keeps the mount busy. */
	while (bickford_session_unmount(session, BICKFORD_UNMOUNT_NORMAL) != 0) {
		CHECK(strstr(bickford_last_error(), "busy") != NULL);
		usleep(1000);
	}
	CHECK(bickford_session_wait(session, -1) == 0);
	CHECK(bickford_session_close(session) == 0);
	CHECK(bickford_session_close(session) == BICKFORD_ERROR_HANDLE);
	while (__atomic_load_n(&second_completion, __ATOMIC_SEQ_CST) == 1)
		usleep(1000);
	CHECK(__atomic_load_n(&second_completion, __ATOMIC_SEQ_CST) == BICKFORD_ERROR_HANDLE);
	CHECK(__atomic_load_n(&calls, __ATOMIC_SEQ_CST) > 0);
	puts("hello: all is well");
	return 0;
}
