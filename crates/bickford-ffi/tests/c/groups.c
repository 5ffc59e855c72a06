/* Who asks: `groups MOUNTPOINT DIRECTORY` mounts a file system whose callbacks see the groups of a child, which looks up
 * `now`, and `later`, whose reply was deferred by then. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bickford.h"
#include "check.h"

#define ROOM 8

static const uint32_t wanted[] = {5, 12, 4711};
#define COUNT ((int32_t)(sizeof wanted / sizeof *wanted))

static int seen;

static void check_groups(const uint32_t *groups, int32_t count)
{
	CHECK(count == COUNT && memcmp(groups, wanted, sizeof wanted) == 0);
	CHECK(groups[COUNT] == UINT32_MAX);
	seen++;
}

static int32_t lookup(const bickford_request *request, bickford_reply *reply)
{
	uint32_t groups[ROOM];
	uint64_t later;

	memset(groups, 0xff, sizeof groups);
	if (request->name_length == strlen("now")) {
		check_groups(groups, bickford_reply_groups(reply, groups, ROOM));
		/* As far as there is room. */
		memset(groups, 0xff, sizeof groups);
		CHECK(bickford_reply_groups(reply, groups, 1) == COUNT);
		CHECK(groups[0] == wanted[0] && groups[1] == UINT32_MAX);
		CHECK(bickford_reply_groups(reply, NULL, 0) == COUNT);
		CHECK(bickford_reply_groups(reply, NULL, 1) == BICKFORD_ERROR_ARGUMENT);
		return ENOENT;
	}
	CHECK(bickford_reply_defer(reply, &later) == 0);
	check_groups(groups, bickford_deferred_groups(later, groups, ROOM));
	CHECK(bickford_deferred_complete(later, ENOENT, NULL) == 0);
	CHECK(bickford_deferred_groups(later, groups, ROOM) == BICKFORD_ERROR_HANDLE);
	return BICKFORD_LATER;
}

static int32_t dispatch(void *user, const bickford_request *request, bickford_answer *answer,
	bickford_reply *reply)
{
	(void)user;
	if (request->operation == BICKFORD_OP_LOOKUP)
		return lookup(request, reply);
	answer->attr.ino = request->node;
	answer->attr.mode = S_IFDIR | 0755;
	return 0;
}

/* In a process with groups of its own, which does nothing with the library. */
static int look_up(const char *mountpoint, const char *name)
{
	gid_t others[] = {4711, 12};
	char path[4096];
	struct stat found;
	int status;
	pid_t child;

	snprintf(path, sizeof path, "%s/%s", mountpoint, name);
	child = fork();
	if (child == 0)
		_exit(setgroups(2, others) != 0 || setgid(wanted[0]) != 0 ||
			stat(path, &found) != -1 || errno != ENOENT);
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	return status;
}

int main(int argc, char **argv)
{
	bickford_callbacks callbacks = {
		.operations = BIT(BICKFORD_OP_LOOKUP) | BIT(BICKFORD_OP_GETATTR),
		.dispatch = dispatch,
	};
	uint64_t session;

	CHECK(argc == 3);
	CHECK(bickford_reply_groups(NULL, NULL, 0) == BICKFORD_ERROR_ARGUMENT);
	CHECK(bickford_mount(argv[1], "allow_other", NULL, &callbacks, &session) == 0);
	CHECK(look_up(argv[1], "now") == 0);
	CHECK(look_up(argv[1], "later") == 0);
	CHECK(bickford_session_unmount(session, BICKFORD_UNMOUNT_LAZY) == 0);
	CHECK(bickford_session_wait(session, -1) == 0);
	CHECK(bickford_session_close(session) == 0);
	CHECK(seen == 2);
	return 0;
}
