/* A program with flags and a source of its own: `program FILE MOUNTPOINT` shows one file, `says`, with a greeting and
 * what FILE has. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bickford.h"
#include "check.h"

struct state {
	char text[256];
	const char *source;
	uint64_t session;
	int asked;
};

static int handled;

/* A line for each signal that the program handles itself. */
static void handle(int signal)
{
	const char *line = signal == SIGHUP ? "SIGHUP\n" : "SIGUSR1\n";

	if (write(handled, line, strlen(line)) < 0)
		_exit(1);
}

/* A line of whoever called the program. */
static void ask(const char *where, char *line, size_t room)
{
	FILE *file = fopen(where, "r");

	CHECK(file != NULL);
	fputs("? ", stderr);
	CHECK(fgets(line, room, file) != NULL);
	line[strcspn(line, "\n")] = '\0';
	fclose(file);
}

static int32_t open_it(void *user, const bickford_invocation *given, char *message, uint64_t room)
{
	struct state *state = user;
	FILE *file = fopen(given->source, "r");
	char greeting[64];
	size_t length;

	CHECK(given->value_count == 6);
	if (file == NULL && given->values[2] != NULL)
		return errno;
	if (file == NULL) {
		snprintf(message, room, "%s: %s", given->source, strerror(errno));
		return -1;
	}
	CHECK(given->mountpoint[0] != '\0');
	snprintf(greeting, sizeof greeting, "%s", given->values[0]);
	if (given->values[3] != NULL) {
		ask(given->values[3], greeting, sizeof greeting);
		state->asked = 1;
	}
	if (given->values[4] != NULL) {
		handled = open(given->values[4], O_WRONLY | O_APPEND);
		CHECK(handled >= 0 && dprintf(handled, "%d\n", getpid()) > 0);
		CHECK(signal(SIGHUP, handle) != SIG_ERR && signal(SIGUSR1, handle) != SIG_ERR);
	}
	length = snprintf(state->text, sizeof state->text, "%s%s ", greeting,
		given->values[1] != NULL && given->values[1][0] == '\0' ? "!" : "");
	length += fread(state->text + length, 1, sizeof state->text - length - 1, file);
	for (const char *const *name = given->all_values[5]; *name != NULL; name++)
		length += snprintf(state->text + length, sizeof state->text - length, ", %s", *name);
	CHECK(given->values[5] == NULL || strstr(state->text, given->values[5]) != NULL);
	CHECK((given->all_values[1][0] == NULL) == (given->values[1] == NULL));
	state->text[length] = '\0';
	state->source = given->source;
	fclose(file);
	return 0;
}

static void begun(void *user, uint64_t session)
{
	struct state *state = user;
	char line[128];

	state->session = session;
	CHECK(bickford_session_wait(session, 0) == BICKFORD_ERROR_TIMEOUT);
	if (state->asked) {
		CHECK(getsid(0) == getpid());
		CHECK(open("/dev/tty", O_RDWR) < 0 && errno == ENXIO);
		CHECK(read(0, line, sizeof line) == 0);
	}
	snprintf(line, sizeof line, "%s is there, connection %d", state->source,
		bickford_session_connection(session) >= 0);
	CHECK(bickford_log_line(BICKFORD_LOG_INFO, line) == 0);
	CHECK(bickford_log_line(99, line) != 0);
	CHECK(bickford_log_line(BICKFORD_LOG_INFO, NULL) != 0);
}

static int32_t dispatch(void *user, const bickford_request *request, bickford_answer *answer,
	bickford_reply *reply)
{
	struct state *state = user;
	size_t length = strlen(state->text);

	switch (request->operation) {
	case BICKFORD_OP_GETATTR:
		if (strcmp(request->path, "/") == 0) {
			answer->attr.mode = S_IFDIR | 0755;
		} else if (strcmp(request->path, "/says") == 0) {
			answer->attr.mode = S_IFREG | 0644;
			answer->attr.size = length;
		} else {
			return ENOENT;
		}
		return 0;
	case BICKFORD_OP_READDIR:
		return bickford_reply_list(reply, (const uint8_t *)"says", 4, S_IFREG, NULL) == 0 ? 0 : EIO;
	case BICKFORD_OP_READ:
		if (request->offset < length) {
			answer->data_length = length - request->offset;
			memcpy(answer->data, state->text + request->offset, answer->data_length);
		}
		return 0;
	default:
		return ENOSYS;
	}
}

int main(int argc, char **argv)
{
	static const bickford_flag flags[] = {
		{.name = "greeting|g", .value = "TEXT", .initial = "Hello", .help = "How it begins"},
		{.name = "aloud", .help = "With an exclamation mark"},
		{.name = "terse", .help = "Says nothing but the errno"},
		{.name = "ask", .value = "FILE", .help = "Where the greeting is asked for"},
		{.name = "handled", .value = "FILE", .help = "Where its signals are told"},
		{.name = "also.to|2", .value = "NAME", .help = "Whom it greets as well"},
	};
	struct state state = {.session = 0};
	bickford_program program = {
		.abi_version = BICKFORD_ABI_VERSION,
		.source_is_path = 1,
		.name = "greeter",
		.version = "3.1",
		.about = "Greets",
		.source = "FILE",
		.options = "ro,attr_timeout=0,max_background=5",
		.flags = flags,
		.flag_count = sizeof flags / sizeof *flags,
		.open = open_it,
		.begun = begun,
	};
	bickford_callbacks callbacks = {
		.user = &state,
		.operations = BIT(BICKFORD_OP_GETATTR) | BIT(BICKFORD_OP_READDIR) | BIT(BICKFORD_OP_READ),
		.dispatch = dispatch,
	};

	/* Nobody calls it with a mount point alone. */
	if (argc == 2 && argv[1][0] == '/')
		return 9;
	if (argc > 1 && strcmp(argv[1], "nameless") == 0)
		program.name = NULL;
	if (argc > 1 && strcmp(argv[1], "outdated") == 0)
		program.abi_version = 0;
	if (argc > 1 && strcmp(argv[1], "driven") == 0)
		program.options = "driven";
	if (argc > 1 && strcmp(argv[1], "doubled") == 0)
		program.flags = &(const bickford_flag){.name = "log"}, program.flag_count = 1;
	if (argc > 1 && strcmp(argv[1], "letters") == 0)
		program.flags = &(const bickford_flag){.name = "log|xy"}, program.flag_count = 1;
	if (argc > 1 && strcmp(argv[1], "closing") == 0) {
		for (int other = 3; other < 256; other++)
			close(other);
		return bickford_program_run_paths(argc - 1, argv + 1, &program, NULL, &callbacks);
	}
	if (argc > 1 && strcmp(argv[1], "nodes") == 0)
		return bickford_program_run(argc - 1, argv + 1, &program, NULL, &callbacks);
	return bickford_program_run_paths(argc, argv, &program, NULL, &callbacks);
}
