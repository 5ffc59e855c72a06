/* Notifications and listings with entries: `notify MOUNTPOINT DIRECTORY` mounts a file system of three
 * files over each transport, tells the kernel of changes and sees that it knows. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bickford.h"
#include "check.h"

#define HOUR UINT64_C(3600000000000)
#define KEEP_CACHE 2 /* FOPEN_KEEP_CACHE */
#define STORE 2
#define GONE 3
#define POLLED 4

static const char text[] = "stored";
static const char *const names[] = {".", "..", "store", "gone", "polled"};

struct state {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t session, waiter;
	int lookups, reads, plus, gone, ready, waits, retrieved, forgotten;
	char data[64];
};

static void fill_entry(bickford_answer *answer, uint64_t node)
{
	answer->node = node;
	answer->attr.ino = node;
	answer->attr.links = 1;
	answer->attr.mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0644;
	answer->attr.size = node == STORE ? sizeof text - 1 : 0;
	answer->attr_valid = HOUR;
	answer->entry_valid = HOUR;
}

static int32_t look_up(const struct state *state, const bickford_request *request,
	bickford_answer *answer)
{
	for (uint64_t node = STORE; node <= POLLED; node++)
		if (request->name_length == strlen(names[node]) &&
		    memcmp(request->name, names[node], request->name_length) == 0) {
			if (node == GONE && state->gone)
				return ENOENT;
			fill_entry(answer, node);
			return 0;
		}
	return ENOENT;
}

static int32_t list(const bickford_request *request, bickford_answer *answer)
{
	for (uint64_t i = request->offset; i < 5; i++) {
		bickford_answer entry = {0};

		fill_entry(&entry, i < 2 ? 1 : i);
		if (bickford_listing_add_plus(answer, (const uint8_t *)names[i], strlen(names[i]),
			i + 1, &entry) != 1)
			break;
	}
	return 0;
}

static int32_t serve(struct state *state, const bickford_request *request, bickford_answer *answer)
{
	switch (request->operation) {
	case BICKFORD_OP_FORGET:
		for (uint64_t i = 0; i < request->size; i++)
			state->forgotten |= ((const uint64_t *)request->data)[2 * i] == STORE;
		pthread_cond_broadcast(&state->changed);
		return 0;
	case BICKFORD_OP_LOOKUP:
		state->lookups++;
		return look_up(state, request, answer);
	case BICKFORD_OP_GETATTR:
		fill_entry(answer, request->node);
		return 0;
	case BICKFORD_OP_READDIRPLUS:
		state->plus++;
		return list(request, answer);
	case BICKFORD_OP_OPEN:
		answer->open_flags = KEEP_CACHE;
		return 0;
	case BICKFORD_OP_READ:
		state->reads++;
		return 0;
	case BICKFORD_OP_POLL:
		if (request->present & BICKFORD_HAS_WAITER) {
			state->waiter = request->offset;
			state->waits = 1;
			pthread_cond_broadcast(&state->changed);
		}
		answer->count = state->ready ? POLLIN : 0;
		return 0;
	default:
		return ENOSYS;
	}
}

static int32_t dispatch(void *user, const bickford_request *request, bickford_answer *answer,
	bickford_reply *reply)
{
	struct state *state = user;
	int32_t result;

	(void)reply;
	pthread_mutex_lock(&state->lock);
	result = serve(state, request, answer);
	pthread_mutex_unlock(&state->lock);
	return result;
}

static int get(struct state *state, const int *number)
{
	int value;

	pthread_mutex_lock(&state->lock);
	value = *number;
	pthread_mutex_unlock(&state->lock);
	return value;
}

static const char *path_of(const char *mountpoint, int node)
{
	static char path[4096];

	snprintf(path, sizeof path, "%s/%s", mountpoint, names[node]);
	return path;
}

/* A listing brings the entries: no name is looked up afterwards. */
static void check_listing(struct state *state, const char *mountpoint)
{
	DIR *directory = opendir(mountpoint);
	struct dirent *entry;
	struct stat attr;
	int entries = 0;

	CHECK(directory != NULL);
	while ((entry = readdir(directory)) != NULL)
		CHECK(entries < 5 && strcmp(entry->d_name, names[entries++]) == 0);
	CHECK(entries == 5);
	closedir(directory);
	CHECK(get(state, &state->plus) > 0);
	for (int node = STORE; node <= POLLED; node++)
		CHECK(stat(path_of(mountpoint, node), &attr) == 0 && attr.st_ino == (ino_t)node);
	CHECK(get(state, &state->lookups) == 0);
}

static void receive(void *user, uint64_t offset, const uint8_t *data, uint64_t length)
{
	struct state *state = user;

	pthread_mutex_lock(&state->lock);
	if (offset == 0 && length < sizeof state->data)
		memcpy(state->data, data, length);
	state->retrieved = 1;
	pthread_cond_broadcast(&state->changed);
	pthread_mutex_unlock(&state->lock);
}

/* What is put into the page cache is read from there, and can be had back. */
static void check_store(struct state *state, const char *mountpoint)
{
	const uint8_t *bytes = (const uint8_t *)text;
	char content[64] = "";
	int file = open(path_of(mountpoint, STORE), O_RDONLY);

	CHECK(file >= 0);
	CHECK(bickford_notify_store(state->session, STORE, 0, NULL, 6) == BICKFORD_ERROR_ARGUMENT);
	CHECK(bickford_notify_store(state->session, STORE, 0, bytes, sizeof text - 1) == 0);
	CHECK(bickford_notify_flush(state->session) == 0);
	CHECK(read(file, content, sizeof content) == sizeof text - 1);
	CHECK(strcmp(content, text) == 0);
	CHECK(get(state, &state->reads) == 0);
	CHECK(bickford_notify_retrieve(state->session, STORE, 0, 64, NULL, NULL) ==
		BICKFORD_ERROR_ARGUMENT);
	CHECK(bickford_notify_retrieve(state->session, STORE, 0, 64, receive, state) == 0);
	pthread_mutex_lock(&state->lock);
	while (!state->retrieved)
		pthread_cond_wait(&state->changed, &state->lock);
	CHECK(strcmp(state->data, text) == 0);
	pthread_mutex_unlock(&state->lock);
	close(file);
}

/* A name that is cached for an hour is gone at once. */
static void check_delete(struct state *state, const char *mountpoint)
{
	const uint8_t *name = (const uint8_t *)names[GONE];

	pthread_mutex_lock(&state->lock);
	state->gone = 1;
	pthread_mutex_unlock(&state->lock);
	CHECK(access(path_of(mountpoint, GONE), F_OK) == 0);
	CHECK(bickford_notify_delete(state->session, 1, GONE, name, strlen(names[GONE])) == 0);
	CHECK(bickford_notify_flush(state->session) == 0);
	CHECK(access(path_of(mountpoint, GONE), F_OK) == -1 && errno == ENOENT);
}

static void *wake(void *user)
{
	struct state *state = user;
	uint64_t waiter;

	pthread_mutex_lock(&state->lock);
	while (!state->waits)
		pthread_cond_wait(&state->changed, &state->lock);
	state->ready = 1;
	waiter = state->waiter;
	pthread_mutex_unlock(&state->lock);
	CHECK(bickford_notify_poll(state->session, waiter) == 0);
	return NULL;
}

/* Whoever polls is woken. */
static void check_poll(struct state *state, const char *mountpoint)
{
	struct pollfd polled = {.events = POLLIN};
	pthread_t thread;

	polled.fd = open(path_of(mountpoint, POLLED), O_RDONLY);
	CHECK(polled.fd >= 0);
	CHECK(pthread_create(&thread, NULL, wake, state) == 0);
	CHECK(poll(&polled, 1, -1) == 1 && polled.revents == POLLIN);
	CHECK(pthread_join(thread, NULL) == 0);
	close(polled.fd);
}

/* Names that are cached for an hour are looked up again, and an inode that nobody uses is forgotten. */
static void check_expiry(struct state *state, const char *mountpoint)
{
	bickford_negotiated negotiated;
	uint64_t nodes[] = {4711, STORE};
	struct stat attr;
	int before = get(state, &state->lookups);

	CHECK(bickford_session_negotiated(state->session, &negotiated) == 0);
	CHECK(bickford_notify_epoch(4711) == BICKFORD_ERROR_HANDLE);
	CHECK(bickford_notify_epoch(state->session) == 0);
	CHECK(bickford_notify_flush(state->session) == 0);
	CHECK(stat(path_of(mountpoint, STORE), &attr) == 0);
	CHECK(get(state, &state->lookups) == before + (negotiated.minor >= 44));
	CHECK(bickford_notify_prune(state->session, NULL, 1) == BICKFORD_ERROR_ARGUMENT);
	CHECK(bickford_notify_prune(state->session, nodes, UINT64_MAX) == BICKFORD_ERROR_ARGUMENT);
	CHECK(bickford_notify_prune(state->session, nodes, 2) == 0);
	if (negotiated.minor < 45)
		return;
	pthread_mutex_lock(&state->lock);
	while (!state->forgotten)
		pthread_cond_wait(&state->changed, &state->lock);
	pthread_mutex_unlock(&state->lock);
}

static void check_all(const char *mountpoint, const char *options)
{
	struct state state = {
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER,
	};
	bickford_callbacks callbacks = {
		.user = &state,
		.operations = BIT(BICKFORD_OP_LOOKUP) | BIT(BICKFORD_OP_GETATTR) |
			BIT(BICKFORD_OP_READDIRPLUS) | BIT(BICKFORD_OP_OPEN) |
			BIT(BICKFORD_OP_READ) | BIT(BICKFORD_OP_POLL) | BIT(BICKFORD_OP_FORGET),
		.dispatch = dispatch,
	};

	CHECK(bickford_mount(mountpoint, options, NULL, &callbacks, &state.session) == 0);
	check_listing(&state, mountpoint);
	check_store(&state, mountpoint);
	check_delete(&state, mountpoint);
	check_poll(&state, mountpoint);
	check_expiry(&state, mountpoint);
	CHECK(bickford_session_unmount(state.session, BICKFORD_UNMOUNT_LAZY) == 0);
	CHECK(bickford_session_wait(state.session, -1) == 0);
	CHECK(bickford_notify_poll(state.session, state.waiter) == BICKFORD_ERROR_HANDLE);
	CHECK(bickford_session_close(state.session) == 0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	CHECK(bickford_abi_version() == BICKFORD_ABI_VERSION);
	check_all(argv[1], "transport=dev");
	check_all(argv[1], "transport=auto");
	puts("notify: all is well");
	return 0;
}
