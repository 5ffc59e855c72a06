/* A root that is a file: `root MOUNTPOINT DIRECTORY` mounts one over a file of DIRECTORY, by nodes and by paths;
 * MOUNTPOINT is refused, as it is a directory. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "bickford.h"
#include "check.h"

static const char TEXT[] = "shown in its place";

static int32_t dispatch(void *user, const bickford_request *request, bickford_answer *answer,
	bickford_reply *reply)
{
	size_t length = strlen(TEXT);

	(void)user;
	(void)reply;
	CHECK(request->node == (request->path == NULL ? 1 : 0));
	CHECK(request->path == NULL || strcmp(request->path, "/") == 0);
	switch (request->operation) {
	case BICKFORD_OP_GETATTR:
		answer->attr.ino = 1;
		answer->attr.links = 1;
		answer->attr.mode = S_IFREG | 0644;
		answer->attr.size = length;
		return 0;
	case BICKFORD_OP_READ:
		if (request->offset < length) {
			answer->data_length = length - request->offset;
			memcpy(answer->data, TEXT + request->offset, answer->data_length);
		}
		return 0;
	default:
		return ENOSYS;
	}
}

static void says(const char *path, const char *expected)
{
	FILE *file = fopen(path, "r");
	char text[64] = "";

	CHECK(file != NULL);
	CHECK(fread(text, 1, sizeof text - 1, file) == strlen(expected));
	CHECK(strcmp(text, expected) == 0);
	fclose(file);
}

int main(int argc, char **argv)
{
	bickford_callbacks callbacks = {
		.operations = BIT(BICKFORD_OP_GETATTR) | BIT(BICKFORD_OP_READ),
		.dispatch = dispatch,
	};
	uint64_t session;
	char path[4096];
	FILE *file;

	CHECK(argc == 3);
	snprintf(path, sizeof path, "%s/file", argv[2]);
	file = fopen(path, "w");
	CHECK(file != NULL && fputs("covered", file) >= 0 && fclose(file) == 0);
	for (int over_paths = 0; over_paths < 2; over_paths++) {
		int32_t (*mount)(const char *, const char *, const bickford_config *,
			const bickford_callbacks *, uint64_t *) = over_paths ? bickford_mount_paths : bickford_mount;

		CHECK(mount(argv[1], "root_kind=file", NULL, &callbacks, &session) != 0);
		CHECK(strstr(bickford_last_error(), "is a directory") != NULL);
		CHECK(mount(path, "root_kind=file", NULL, &callbacks, &session) == 0);
		says(path, TEXT);
		CHECK(bickford_session_unmount(session, BICKFORD_UNMOUNT_NORMAL) == 0);
		CHECK(bickford_session_wait(session, -1) == 0);
		CHECK(bickford_session_close(session) == 0);
		says(path, "covered");
	}
	return 0;
}
