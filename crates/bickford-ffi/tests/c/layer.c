/* A directory through StackFS with calls around its operations: `layer MOUNTPOINT DIRECTORY`. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "bickford.h"
#include "check.h"

#define TRIES 100

/* What the calls saw, and what they are to do. */
struct calls {
	pthread_mutex_t lock;
	int fail_opens;
	int refused;
	int writes;
	char written[16];
	char attribute[16];
};

static void keep(char *into, size_t room, const bickford_request *request)
{
	size_t length = request->data_length < room ? request->data_length : room - 1;

	if (length > 0)
		memcpy(into, request->data, length);
	into[length] = 0;
}

static int32_t before(void *user, bickford_request *request, bickford_answer *answer)
{
	(void)user;
	if (request->operation == BICKFORD_OP_LOOKUP && request->name_length == 4 &&
	    memcmp(request->name, "none", 4) == 0)
		return EACCES;
	if (request->operation == BICKFORD_OP_STATFS) {
		answer->statfs.blocks = 4711;
		return BICKFORD_ANSWERED;
	}
	return 0;
}

static int32_t after(void *user, const bickford_request *request, bickford_answer *answer,
	int32_t result)
{
	struct calls *calls = user;

	(void)answer;
	pthread_mutex_lock(&calls->lock);
	switch (request->operation) {
	case BICKFORD_OP_OPEN:
	case BICKFORD_OP_CREATE:
	case BICKFORD_OP_OPENDIR:
		if (result == 0 && calls->fail_opens) {
			calls->refused++;
			result = EDQUOT;
		}
		break;
	case BICKFORD_OP_WRITE:
		calls->writes++;
		keep(calls->written, sizeof calls->written, request);
		break;
	case BICKFORD_OP_SETXATTR:
		keep(calls->attribute, sizeof calls->attribute, request);
		break;
	default:
		break;
	}
	pthread_mutex_unlock(&calls->lock);
	return result;
}

static void set_fail_opens(struct calls *calls, int fail)
{
	pthread_mutex_lock(&calls->lock);
	calls->fail_opens = fail;
	pthread_mutex_unlock(&calls->lock);
}

/* Opens that the post-call makes fail leave nothing open below. */
static void check_refused_opens(struct calls *calls, const char *file, const char *directory)
{
	int had, file_descriptor = open(file, O_RDWR | O_CREAT, 0644);

	CHECK(file_descriptor >= 0 && close(file_descriptor) == 0);
	set_fail_opens(calls, 1);
	CHECK(open(file, O_RDONLY) == -1 && errno == EDQUOT);
	had = descriptors();
	for (int i = 0; i < TRIES; i++) {
		CHECK(open(file, O_RDWR) == -1 && errno == EDQUOT);
		CHECK(opendir(directory) == NULL && errno == EDQUOT);
	}
	CHECK(descriptors() < had + TRIES / 2);
	pthread_mutex_lock(&calls->lock);
	CHECK(calls->refused == 2 * TRIES + 1);
	pthread_mutex_unlock(&calls->lock);
	set_fail_opens(calls, 0);
}

/* The post-call sees what was written; without data it sees that something was. */
static void check_data(struct calls *calls, const char *file, int with_data)
{
	int descriptor = open(file, O_RDWR | O_CREAT, 0644);

	CHECK(descriptor >= 0);
	CHECK(write(descriptor, "written", 7) == 7 && fsync(descriptor) == 0);
	/* Where the lower file system has none, the call sees that, too. */
	(void)fsetxattr(descriptor, "user.bickford", "value", 5, 0);
	CHECK(close(descriptor) == 0);
	pthread_mutex_lock(&calls->lock);
	CHECK(calls->writes > 0);
	CHECK(strcmp(calls->written, with_data ? "written" : "") == 0);
	CHECK(strcmp(calls->attribute, "value") == 0);
	pthread_mutex_unlock(&calls->lock);
}

/* A session that cannot be unmounted is not closed. */
static void check_close(const char *mountpoint, uint64_t session)
{
	CHECK(mount("cover", mountpoint, "tmpfs", 0, NULL) == 0);
	CHECK(bickford_session_close(session) == BICKFORD_ERROR_SYSTEM);
	CHECK(strstr(bickford_last_error(), "covered") != NULL);
	CHECK(bickford_session_wait(session, 0) == BICKFORD_ERROR_TIMEOUT);
	CHECK(umount(mountpoint) == 0);
	CHECK(bickford_session_unmount(session, BICKFORD_UNMOUNT_LAZY) == 0);
	CHECK(bickford_session_wait(session, -1) == 0);
	CHECK(bickford_session_close(session) == 0);
	CHECK(bickford_session_close(session) == BICKFORD_ERROR_HANDLE);
}

int main(int argc, char **argv)
{
	struct calls calls = {.lock = PTHREAD_MUTEX_INITIALIZER};
	bickford_config config = {.abi_version = BICKFORD_ABI_VERSION};
	bickford_layer layer = {
		.user = &calls,
		.pre_operations = BIT(BICKFORD_OP_LOOKUP) | BIT(BICKFORD_OP_STATFS),
		.call_operations = ~UINT64_C(0),
		.post_operations = BIT(BICKFORD_OP_OPEN) | BIT(BICKFORD_OP_CREATE) |
			BIT(BICKFORD_OP_OPENDIR) | BIT(BICKFORD_OP_WRITE) | BIT(BICKFORD_OP_SETXATTR),
		.pre = before,
		.post = after,
	};
	char file[4096], none[4096];
	uint64_t session = 0;

	CHECK(argc == 3);
	snprintf(file, sizeof file, "%s/file", argv[1]);
	snprintf(none, sizeof none, "%s/none", argv[1]);
	CHECK(bickford_stackfs_mount(argv[2], argv[1], NULL, &config, NULL, &session) ==
		BICKFORD_ERROR_ARGUMENT);
	CHECK(bickford_stackfs_mount(argv[2], argv[1], NULL, &config, &layer, &session) == 0);
	CHECK(access(none, F_OK) == -1 && errno == EACCES);
	check_refused_opens(&calls, file, argv[1]);
	check_data(&calls, file, 1);
	check_close(argv[1], session);
	calls.writes = 0;
	layer.metadata_only = 1;
	CHECK(bickford_stackfs_mount(argv[2], argv[1], NULL, NULL, &layer, &session) == 0);
	check_data(&calls, file, 0);
	check_close(argv[1], session);
	puts("layer: all is well");
	return 0;
}
