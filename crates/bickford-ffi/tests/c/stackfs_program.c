/* A program that serves a directory with calls around its operations: `stackfs_program DIRECTORY MOUNTPOINT` writes capital
 * letters, and with --as-is what it gets. */
#include <ctype.h>
#include <string.h>

#include "bickford.h"
#include "check.h"

static bickford_layer layer;
static bickford_program program;
static char capitals[1 << 20];

static int32_t before(void *user, bickford_request *request, bickford_answer *answer)
{
	uint64_t i;

	(void)user;
	(void)answer;
	CHECK(request->operation == BICKFORD_OP_WRITE && request->data_length <= sizeof capitals);
	for (i = 0; i < request->data_length; i++)
		capitals[i] = toupper(request->data[i]);
	request->data = (uint8_t *)capitals;
	return 0;
}

/* Which operations have calls is known only now. */
static int32_t open_it(void *user, const bickford_invocation *given, char *message, uint64_t room)
{
	(void)message;
	(void)room;
	CHECK(user == &layer && given->source[0] == '/');
	if (given->values[0] == NULL) {
		layer.pre_operations = BIT(BICKFORD_OP_WRITE);
		layer.pre = before;
	}
	layer.call_operations = ~UINT64_C(0);
	program.options = "preset=base,io=direct";
	return 0;
}

int main(int argc, char **argv)
{
	static const bickford_flag flags[] = {{.name = "as-is", .help = "Writes what it gets"}};

	layer.user = &layer;
	program = (bickford_program){
		.abi_version = BICKFORD_ABI_VERSION,
		.source_is_path = 1,
		.name = "shouter",
		.source = "DIRECTORY",
		.options = "default_permissions",
		.flags = flags,
		.flag_count = 1,
		.open = open_it,
	};
	if (argc > 1 && strcmp(argv[1], "nameless") == 0)
		program.source_is_path = 0;
	return bickford_program_run_stackfs(argc, argv, &program, NULL, &layer);
}
