/* A file system over paths in C: one file. Build and use it (README.md, "In C"):
 *
 *     cc hello.c $(pkg-config --cflags --libs bickford) -o hello
 *     mkdir /tmp/hello && sudo ./hello -o allow_other /tmp/hello
 *     cat /tmp/hello/hello
 *     sudo umount /tmp/hello
 */
#include <bickford.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const char text[] = "Hello, world!\n";

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
	bickford_program program = {
		.abi_version = BICKFORD_ABI_VERSION,
		.name = "hello",
		.about = "A file system with one file",
		.options = "ro",
	};
	bickford_callbacks callbacks = {
		.operations = UINT64_C(1) << BICKFORD_OP_GETATTR | UINT64_C(1) << BICKFORD_OP_READDIR |
			UINT64_C(1) << BICKFORD_OP_READ,
		.dispatch = dispatch,
	};

	return bickford_program_run_paths(argc, argv, &program, NULL, &callbacks);
}
