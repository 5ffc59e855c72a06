/* The log of the library: `log MOUNTPOINT DIRECTORY` mounts a file system that answers what the kernel does
 * not take, and hears why its caller gets EIO; DIRECTORY is not used. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bickford.h"
#include "check.h"

struct heard {
	int errors, others;
	int why;
};

static int32_t dispatch(void *user, const bickford_request *request, bickford_answer *answer,
	bickford_reply *reply)
{
	(void)user;
	(void)reply;
	answer->node = request->operation == BICKFORD_OP_LOOKUP ? 2 : request->node;
	answer->attr.ino = answer->node;
	answer->attr.links = 1;
	answer->attr.mode = answer->node == 1 ? S_IFDIR | 0755 : 0644;
	return 0;
}

static void hear(void *user, uint32_t level, const char *text)
{
	struct heard *heard = user;

	__atomic_fetch_add(level == BICKFORD_LOG_ERROR ? &heard->errors : &heard->others, 1, __ATOMIC_SEQ_CST);
	if (strstr(text, "S_IFREG") != NULL && strstr(text, " opcode=\"LOOKUP\"") != NULL)
		__atomic_store_n(&heard->why, 1, __ATOMIC_SEQ_CST);
}

/* Answers how many errors there were. */
static int look(const char *mountpoint, struct heard *heard)
{
	char path[4096];
	struct stat attributes;

	__atomic_store_n(&heard->errors, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&heard->others, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&heard->why, 0, __ATOMIC_SEQ_CST);
	snprintf(path, sizeof path, "%s/file", mountpoint);
	CHECK(stat(path, &attributes) == -1 && errno == EIO);
	return __atomic_load_n(&heard->errors, __ATOMIC_SEQ_CST);
}

int main(int argc, char **argv)
{
	bickford_callbacks callbacks = {
		.operations = BIT(BICKFORD_OP_LOOKUP) | BIT(BICKFORD_OP_GETATTR),
		.dispatch = dispatch,
	};
	struct heard heard = {0, 0, 0};
	uint64_t session;

	CHECK(argc == 3);
	CHECK(bickford_log(0, hear, &heard) == BICKFORD_ERROR_ARGUMENT);
	CHECK(bickford_log(BICKFORD_LOG_DEBUG + 1, hear, &heard) == BICKFORD_ERROR_ARGUMENT);
	CHECK(bickford_log(BICKFORD_LOG_INFO, hear, &heard) == 0);
	CHECK(bickford_mount(argv[1], NULL, NULL, &callbacks, &session) == 0);
	CHECK(__atomic_load_n(&heard.others, __ATOMIC_SEQ_CST) > 0);
	CHECK(look(argv[1], &heard) > 0);
	CHECK(__atomic_load_n(&heard.why, __ATOMIC_SEQ_CST) == 1);
	CHECK(bickford_log(BICKFORD_LOG_ERROR, NULL, NULL) == 0);
	CHECK(look(argv[1], &heard) == 0);
	CHECK(bickford_log(BICKFORD_LOG_ERROR, hear, &heard) == 0);
	CHECK(look(argv[1], &heard) > 0);
	CHECK(bickford_session_close(session) == 0);
	puts("log: all is well");
	return 0;
}
