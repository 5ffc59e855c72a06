/* A file system over paths in C: one file. Build and use it (README.md, "In C"):
 *
 *     cc hello.c $(pkg-config --cflags --libs bickford) -o hello
 *     mkdir /tmp/hello && sudo ./hello /tmp/hello &
 *     cat /tmp/hello/hello
 *     sudo umount /tmp/hello
 */
#include <bickford.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char text[] = "Hello, world!\n";
static volatile sig_atomic_t stopped;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static int32_t get_attr(const char *path, bickford_attr *attr)
{
	if (strcmp(path, "/") == 0) {
		attr->mode = S_IFDIR | 0755;
		attr->links = 2;
	} else if (strcmp(path, "/hello") == 0) {
		attr->mode = S_IFREG | 0644;
		attr->links = 1;
		attr->size = sizeof text - 1;
	} else {
		return ENOENT;
	}
	return 0;
}

static int32_t dispatch(void *user, const bickford_request *request, bickford_answer *answer,
	bickford_reply *reply)
{
	(void)user;
	switch (request->operation) {
	case BICKFORD_OP_GETATTR:
		return get_attr(request->path, &answer->attr);
	case BICKFORD_OP_READDIR:
		return bickford_reply_list(reply, (const uint8_t *)"hello", 5, S_IFREG, NULL) == 0 ? 0 : EIO;
	case BICKFORD_OP_READ:
		if (request->offset < sizeof text - 1) {
			size_t length = sizeof text - 1 - request->offset;

			answer->data_length = length < request->size ? length : request->size;
			memcpy(answer->data, text + request->offset, answer->data_length);
		}
		return 0;
	default:
		return ENOSYS;
	}
}

int main(int argc, char **argv)
{
	bickford_config config = {.abi_version = BICKFORD_ABI_VERSION};
	bickford_callbacks callbacks = {
		.operations = UINT64_C(1) << BICKFORD_OP_GETATTR | UINT64_C(1) << BICKFORD_OP_READDIR |
			UINT64_C(1) << BICKFORD_OP_READ,
		.dispatch = dispatch,
	};
	uint64_t session;

	if (argc != 2) {
		fprintf(stderr, "usage: %s MOUNTPOINT\n", argv[0]);
		return 2;
	}
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	if (bickford_mount_paths(argv[1], "fsname=hello,ro", &config, &callbacks, &session) != 0) {
		fprintf(stderr, "hello: %s\n", bickford_last_error());
		return 1;
	}
	/* Until somebody unmounts it, or a signal comes. */
	while (!stopped && bickford_session_wait(session, 200) == BICKFORD_ERROR_TIMEOUT)
		;
	if (bickford_session_close(session) != 0) {
		fprintf(stderr, "hello: %s\n", bickford_last_error());
		return 1;
	}
	return 0;
}
