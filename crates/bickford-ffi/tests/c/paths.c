/* A directory served over paths (mirror.h), and its user: `paths MOUNTPOINT DIRECTORY` serves DIRECTORY, does with it
 * what there are operations for, and unmounts it. */
#include "mirror.h"

#include <pthread.h>
#include <signal.h>

/* FUSE_STATX came with 7.39, in Linux 6.6. */
#define STATX_SINCE 39

static const char *mountpoint;
static uint64_t session;
static int has_statx;

static int root(const char *name, int flags)
{
	char path[4096];
	int file;

	snprintf(path, sizeof path, "%s/%s", mountpoint, name);
	file = open(path, flags, 0644);
	CHECK(file >= 0);
	return file;
}

static void use_names(int top)
{
	char text[64] = "";
	struct stat first, second;
	int file;

	umask(022);
	CHECK(mkdirat(top, "directory", 0777) == 0);
	CHECK(fstatat(below, "directory", &first, 0) == 0 && (first.st_mode & 07777) == 0755);
	CHECK(mkdirat(top, "directory", 0777) != 0 && errno == EEXIST);
	CHECK(mknodat(top, "fifo", S_IFIFO | 0600, 0) == 0);
	CHECK(fstatat(top, "fifo", &first, 0) == 0 && S_ISFIFO(first.st_mode));
	CHECK(symlinkat("to/nowhere", top, "symbolic") == 0);
	CHECK(readlinkat(top, "symbolic", text, sizeof text) == 10);
	CHECK(memcmp(text, "to/nowhere", 10) == 0);
	file = openat(top, "a-file", O_RDWR | O_CREAT | O_EXCL, 0666);
	CHECK(file >= 0 && write(file, "0123456789", 10) == 10);
	CHECK(linkat(top, "a-file", top, "directory/linked", 0) == 0);
	CHECK(fstat(file, &first) == 0 && fstatat(top, "directory/linked", &second, 0) == 0);
	CHECK(first.st_ino == second.st_ino && second.st_nlink == 2);
	CHECK(renameat2(top, "symbolic", top, "fifo", RENAME_NOREPLACE) != 0 && errno == EEXIST);
	CHECK(renameat2(top, "symbolic", top, "renamed", RENAME_NOREPLACE) == 0);
	CHECK(faccessat(below, "symbolic", F_OK, AT_SYMLINK_NOFOLLOW) != 0);
	CHECK(renameat2(top, "directory", top, "renamed", RENAME_EXCHANGE) == 0);
	CHECK(fstatat(top, "renamed/linked", &second, 0) == 0 && second.st_ino == first.st_ino);
	CHECK(unlinkat(top, "renamed/linked", 0) == 0 && unlinkat(top, "fifo", 0) == 0);
	CHECK(unlinkat(top, "renamed", AT_REMOVEDIR) == 0 && unlinkat(top, "directory", 0) == 0);
	CHECK(fstatat(top, "renamed", &first, 0) != 0 && errno == ENOENT);
	CHECK(unlinkat(top, "a-file", 0) == 0);
	/* It has no path any more. */
	CHECK(pread(file, text, 10, 0) == 10 && memcmp(text, "0123456789", 10) == 0);
	CHECK(fstat(file, &first) == 0 && first.st_size == 10);
	CHECK(close(file) == 0);
	file = openat(top, ".", O_TMPFILE | O_RDWR, 0600);
	CHECK(file >= 0 && write(file, "named later", 11) == 11);
	snprintf(text, sizeof text, "/proc/self/fd/%d", file);
	CHECK(linkat(AT_FDCWD, text, top, "named", AT_SYMLINK_FOLLOW) == 0);
	CHECK(close(file) == 0);
	CHECK(fstatat(below, "named", &first, 0) == 0 && first.st_size == 11);
}

static void use_attributes(int top)
{
	struct timespec times[2] = {{.tv_sec = 1000, .tv_nsec = 5}, {.tv_nsec = UTIME_NOW}};
	bickford_negotiated settled;
	char text[128];
	struct statvfs room;
	struct statx born;
	struct stat found;
	int file = root("attributes", O_RDWR | O_CREAT | O_TRUNC);

	CHECK(fchmod(file, 0640) == 0 && fchown(file, 12, 34) == 0);
	CHECK(ftruncate(file, 4321) == 0 && futimens(file, times) == 0);
	CHECK(fstatat(below, "attributes", &found, 0) == 0);
	CHECK(found.st_mode == (S_IFREG | 0640) && found.st_uid == 12 && found.st_gid == 34);
	CHECK(found.st_size == 4321 && found.st_atim.tv_sec == 1000 && found.st_atim.tv_nsec == 5);
	CHECK(found.st_mtim.tv_sec > 1000000);
	CHECK(statx(file, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_ALL, &born) == 0);
	CHECK(bickford_session_negotiated(session, &settled) == 0);
	has_statx = settled.minor >= STATX_SINCE;
	CHECK(!has_statx ||
		((born.stx_mask & STATX_BTIME) != 0 && born.stx_btime.tv_sec == 123456789));
	CHECK(fsetxattr(file, "user.one", "value", 5, XATTR_CREATE) == 0);
	CHECK(fsetxattr(file, "user.one", "value", 5, XATTR_CREATE) != 0 && errno == EEXIST);
	CHECK(fgetxattr(file, "user.one", NULL, 0) == 5);
	CHECK(fgetxattr(file, "user.one", text, 3) < 0 && errno == ERANGE);
	CHECK(fgetxattr(file, "user.one", text, sizeof text) == 5 && memcmp(text, "value", 5) == 0);
	CHECK(flistxattr(file, text, sizeof text) == 9 && strcmp(text, "user.one") == 0);
	CHECK(fremovexattr(file, "user.one") == 0);
	CHECK(fgetxattr(file, "user.one", text, sizeof text) < 0 && errno == ENODATA);
	CHECK(faccessat(top, "attributes", R_OK, 0) == 0);
	CHECK(fstatvfs(file, &room) == 0 && room.f_files == 4711);
	CHECK(close(file) == 0);
}

static void use_data(int top)
{
	char text[8] = "";
	struct pollfd waits;
	int value = 21, file = root("data", O_RDWR | O_CREAT), copy = root("copy", O_RDWR | O_CREAT);
	loff_t from = 4, to = 0;

	CHECK(pwrite(file, "some data", 9, 0) == 9);
	CHECK(copy_file_range(file, &from, copy, &to, 5, 0) == 5);
	CHECK(pread(copy, text, sizeof text, 0) == 5 && memcmp(text, " data", 5) == 0);
	CHECK(fallocate(file, 0, 1 << 20, 4096) == 0);
	CHECK(lseek(file, 0, SEEK_END) == (1 << 20) + 4096);
	CHECK(lseek(file, 8192, SEEK_HOLE) == 8192 && lseek(file, 0, SEEK_DATA) == 0);
	CHECK(fdatasync(file) == 0 && fsync(file) == 0 && syncfs(file) == 0 && fsync(top) == 0);
	CHECK(ioctl(file, ASK, &value) == 7 && value == 42);
	CHECK(ioctl(top, ASK, &value) == 7 && value == 84);
	CHECK(ioctl(file, _IO('b', 2)) != 0 && errno == ENOTTY);
	waits = (struct pollfd){.fd = file, .events = POLLIN | POLLPRI};
	CHECK(poll(&waits, 1, 10000) == 1 && waits.revents == (POLLIN | POLLPRI));
	CHECK(close(file) == 0 && close(copy) == 0);
	/* What is opened with O_TRUNC is emptied. */
	file = root("data", O_RDWR | O_TRUNC);
	CHECK(lseek(file, 0, SEEK_END) == 0 && close(file) == 0);
}

static void use_locks(void)
{
	int one = root("locked", O_RDWR | O_CREAT), two = root("locked", O_RDWR);
	struct flock lock = {.l_type = F_WRLCK, .l_start = 10, .l_len = 5};
	struct flock other = {.l_type = F_RDLCK, .l_start = 12, .l_len = 1};

	CHECK(fcntl(one, F_OFD_SETLK, &lock) == 0);
	CHECK(fcntl(two, F_OFD_SETLK, &other) != 0 && errno == EAGAIN);
	CHECK(fcntl(two, F_OFD_GETLK, &other) == 0 && other.l_type == F_WRLCK);
	CHECK(other.l_start == 10 && other.l_len == 5);
	lock.l_type = F_UNLCK;
	CHECK(fcntl(one, F_OFD_SETLK, &lock) == 0);
	other = (struct flock){.l_type = F_RDLCK, .l_start = 12, .l_len = 1};
	CHECK(fcntl(two, F_OFD_SETLK, &other) == 0);
	CHECK(flock(one, LOCK_EX | LOCK_NB) == 0);
	CHECK(flock(two, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK);
	CHECK(close(one) == 0);
	/* The kernel tells of the end after close(2) has returned. */
	for (int tries = 0; flock(two, LOCK_EX | LOCK_NB) != 0; tries++) {
		CHECK(tries < 30000);
		usleep(1000);
	}
	CHECK(close(two) == 0);
}

static int count_names(const char *name, const char *wanted)
{
	DIR *directory = fdopendir(root(name, O_RDONLY | O_DIRECTORY));
	struct dirent *entry;
	int count = 0;

	CHECK(directory != NULL);
	errno = 0;
	while ((entry = readdir(directory)) != NULL)
		count += strncmp(entry->d_name, wanted, strlen(wanted)) == 0;
	CHECK(errno == 0);
	closedir(directory);
	return count;
}

/* What a listing tells of a name is not asked for: below there is none. */
static void use_entries(void)
{
	DIR *directory = fdopendir(root("entries", O_RDONLY | O_DIRECTORY));
	struct dirent *entry;
	int count = 0;

	CHECK(directory != NULL);
	while ((entry = readdir(directory)) != NULL) {
		struct stat found;

		CHECK(entry->d_ino == (ino_t)(ENTRY_INO + count));
		CHECK(fstatat(dirfd(directory), entry->d_name, &found, 0) == 0);
		CHECK(found.st_ino == entry->d_ino && found.st_size == count);
		count++;
	}
	CHECK(count == ENTRIES);
	closedir(directory);
}

static void use_listings(int top)
{
	CHECK(mkdirat(top, "listed", 0755) == 0);
	for (int i = 0; i < 50; i++) {
		char name[64];

		snprintf(name, sizeof name, "listed/%c-%d", i % 2 ? 'a' : 'b', i);
		CHECK(close(root(name, O_WRONLY | O_CREAT)) == 0);
	}
	CHECK(count_names("listed", "a-") == 25 && count_names("listed", "b-") == 25);
	CHECK(count_names("listed", ".") == 2);
	CHECK(mkdirat(top, "parts", 0755) == 0);
	CHECK(count_names("parts", "name-") == LATER_NAMES);
	CHECK(mkdirat(top, "later-names", 0755) == 0);
	CHECK(count_names("later-names", "from-a-thread") == 1);
	CHECK(count_names("later-names", "and-its-entry") == 1);
	CHECK(mkdirat(top, "entries", 0755) == 0);
	use_entries();
}

static void *rename_it(void *argument)
{
	CHECK(renameat(*(int *)argument, "later-data", *(int *)argument, "moved") == 0);
	return argument;
}

static void *read_it(void *argument)
{
	char text[16] = "";
	ssize_t length = pread(*(int *)argument, text, sizeof text, 0);

	if (length < 0)
		return errno == EINTR ? (void *)argument : NULL;
	CHECK(length == 9 && memcmp(text, "some data", 9) == 0);
	return NULL;
}

static void nothing(int number)
{
	(void)number;
}

static void wait_for_deferred(int count)
{
	while (__atomic_load_n(&held_now, __ATOMIC_SEQ_CST) < count)
		usleep(1000);
}

/* A reply that is taken out of its callback holds its path, and hears of signals. */
static void use_deferred(int top)
{
	struct sigaction action = {.sa_handler = nothing};
	pthread_t reader, renamer;
	void *interrupted;
	int file = root("later-data", O_RDWR | O_CREAT);

	CHECK(pwrite(file, "some data", 9, 0) == 9);
	CHECK(fsync(file) == 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
	__atomic_store_n(&held, 1, __ATOMIC_SEQ_CST);
	CHECK(pthread_create(&reader, NULL, read_it, &file) == 0);
	wait_for_deferred(1);
	CHECK(pthread_create(&renamer, NULL, rename_it, &top) == 0);
	usleep(200000);
	CHECK(faccessat(below, "later-data", F_OK, 0) == 0);
	/* Others go on meanwhile, where Linux does not lock their directory. */
	CHECK(mkdirat(top, "listed/meanwhile", 0755) == 0);
	__atomic_store_n(&held, 0, __ATOMIC_SEQ_CST);
	CHECK(pthread_join(reader, NULL) == 0 && pthread_join(renamer, NULL) == 0);
	CHECK(faccessat(below, "moved", F_OK, 0) == 0);
	CHECK(renameat(top, "moved", top, "later-data") == 0);
	CHECK(close(file) == 0);
	/* Linux waits for pages of its cache without hearing signals. */
	file = root("later-data", O_RDONLY | O_DIRECT);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	__atomic_store_n(&held, 1, __ATOMIC_SEQ_CST);
	CHECK(pthread_create(&reader, NULL, read_it, &file) == 0);
	wait_for_deferred(1);
	CHECK(__atomic_load_n(&told, __ATOMIC_SEQ_CST) == 0);
	CHECK(pthread_kill(reader, SIGUSR1) == 0);
	CHECK(pthread_join(reader, &interrupted) == 0 && interrupted != NULL);
	CHECK(__atomic_exchange_n(&told, 0, __ATOMIC_SEQ_CST) != 0);
	CHECK(bickford_deferred_on_interrupt(4711, tell, &told) == BICKFORD_ERROR_HANDLE);
	__atomic_store_n(&held, 0, __ATOMIC_SEQ_CST);
	CHECK(close(file) == 0);
}

static void use_notifications(int top)
{
	struct stat found;

	CHECK(fstatat(top, "named", &found, 0) == 0 && found.st_size == 11);
	int file = openat(below, "named", O_WRONLY | O_TRUNC);
	CHECK(file >= 0 && close(file) == 0);
	CHECK(fstatat(top, "named", &found, 0) == 0 && found.st_size == 11);
	CHECK(bickford_notify_path(session, "/named", 0, 0) == 1);
	CHECK(bickford_notify_flush(session) == 0);
	CHECK(fstatat(top, "named", &found, 0) == 0 && found.st_size == 0);
	CHECK(unlinkat(below, "named", 0) == 0);
	CHECK(fstatat(top, "named", &found, 0) == 0);
	CHECK(bickford_notify_path_name(session, "/named", 0) == 1);
	CHECK(bickford_notify_flush(session) == 0);
	CHECK(fstatat(top, "named", &found, 0) != 0 && errno == ENOENT);
	CHECK(bickford_notify_path(session, "/not/known", 0, 0) == 0);
	CHECK(bickford_notify_path_name(session, "/not/known", 0) == 0);
	CHECK(bickford_notify_path_name(session, "/", 0) == BICKFORD_ERROR_ARGUMENT);
	CHECK(bickford_notify_path(session, NULL, 0, 0) == BICKFORD_ERROR_ARGUMENT);
}

static void check_seen(void)
{
	static const uint32_t wanted[] = {
		BICKFORD_OP_GETATTR, BICKFORD_OP_SETATTR, BICKFORD_OP_READLINK, BICKFORD_OP_MKNOD,
		BICKFORD_OP_MKDIR, BICKFORD_OP_UNLINK, BICKFORD_OP_RMDIR, BICKFORD_OP_SYMLINK,
		BICKFORD_OP_RENAME, BICKFORD_OP_LINK, BICKFORD_OP_OPEN, BICKFORD_OP_CREATE,
		BICKFORD_OP_TMPFILE, BICKFORD_OP_OPENDIR, BICKFORD_OP_RELEASE, BICKFORD_OP_RELEASEDIR,
		BICKFORD_OP_READ, BICKFORD_OP_WRITE, BICKFORD_OP_READDIR, BICKFORD_OP_SETXATTR,
		BICKFORD_OP_GETXATTR, BICKFORD_OP_LISTXATTR, BICKFORD_OP_REMOVEXATTR, BICKFORD_OP_GETLK,
		BICKFORD_OP_SETLK, BICKFORD_OP_FSYNC, BICKFORD_OP_FSYNCDIR, BICKFORD_OP_FALLOCATE,
		BICKFORD_OP_LSEEK, BICKFORD_OP_COPY_FILE_RANGE, BICKFORD_OP_STATFS, BICKFORD_OP_STATX,
		BICKFORD_OP_ACCESS, BICKFORD_OP_IOCTL, BICKFORD_OP_POLL, BICKFORD_OP_FLUSH,
	};

	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
		if (__atomic_load_n(&seen[wanted[i]], __ATOMIC_SEQ_CST) == 0 &&
			(has_statx || wanted[i] != BICKFORD_OP_STATX)) {
			fprintf(stderr, "operation %u never came\n", wanted[i]);
			exit(1);
		}
}

static void use(const char *options)
{
	bickford_config config = {.abi_version = BICKFORD_ABI_VERSION};
	bickford_callbacks callbacks = {.operations = UINT64_MAX, .dispatch = dispatch};
	int top;

	memset(seen, 0, sizeof seen);
	destroyed = 0;
	CHECK(bickford_mount_paths(mountpoint, options, &config, &callbacks, &session) == 0);
	top = root(".", O_RDONLY | O_DIRECTORY);
	use_names(top);
	use_attributes(top);
	use_data(top);
	use_locks();
	use_listings(top);
	use_deferred(top);
	use_notifications(top);
	CHECK(close(top) == 0);
	/* RELEASE and RELEASEDIR come after close(2) has returned. */
	CHECK(bickford_session_unmount(session, BICKFORD_UNMOUNT_NORMAL) == 0);
	CHECK(bickford_session_wait(session, -1) == 0);
	CHECK(bickford_session_close(session) == 0);
	check_seen();
	CHECK(destroyed == 1);
}

union handle {
	struct file_handle handle;
	char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
};

static union handle handle_of(const char *name)
{
	union handle found = {.handle.handle_bytes = MAX_HANDLE_SZ};
	char path[4096];
	int mount;

	snprintf(path, sizeof path, "%s/%s", mountpoint, name);
	CHECK(name_to_handle_at(AT_FDCWD, path, &found.handle, &mount, 0) == 0);
	return found;
}

/* As an export over NFS: handles lead to files that the kernel has forgotten. */
static void use_handles(const char *options)
{
	bickford_callbacks callbacks = {.operations = UINT64_MAX, .dispatch = dispatch};
	union handle directory, file;
	char link[64], path[4096] = "", wanted[4096], text[16] = "";
	int top, opened;

	destroyed = 0;
	CHECK(mkdirat(below, "outer", 0755) == 0 && mkdirat(below, "outer/inner", 0755) == 0);
	opened = openat(below, "outer/inner/file", O_CREAT | O_WRONLY, 0644);
	CHECK(write(opened, "contents", 8) == 8 && close(opened) == 0);
	CHECK(bickford_mount_paths(mountpoint, options, NULL, &callbacks, &session) == 0);
	directory = handle_of("outer/inner");
	file = handle_of("outer/inner/file");
	CHECK(bickford_notify_path_name(session, "/outer", 0) == 1);
	CHECK(bickford_notify_flush(session) == 0);
	top = root(".", O_RDONLY | O_DIRECTORY);
	opened = open_by_handle_at(top, &file.handle, O_RDONLY);
	CHECK(opened >= 0);
	CHECK(read(opened, text, sizeof text) == 8 && strcmp(text, "contents") == 0);
	CHECK(close(opened) == 0);
	/* One that is found by its handle alone gets its place in the tree. */
	opened = open_by_handle_at(top, &directory.handle, O_RDONLY | O_DIRECTORY);
	CHECK(opened >= 0);
	snprintf(link, sizeof link, "/proc/self/fd/%d", opened);
	CHECK(readlink(link, path, sizeof path - 1) > 0);
	snprintf(wanted, sizeof wanted, "%s/outer/inner", mountpoint);
	CHECK(strcmp(path, wanted) == 0);
	CHECK(close(opened) == 0 && close(top) == 0);
	CHECK(bickford_session_unmount(session, BICKFORD_UNMOUNT_NORMAL) == 0);
	CHECK(bickford_session_wait(session, -1) == 0);
	CHECK(bickford_session_close(session) == 0);
}

static void empty_source(const char *source)
{
	char command[4096];

	snprintf(command, sizeof command, "find '%s' -mindepth 1 -delete", source);
	CHECK(system(command) == 0);
}

int main(int argc, char **argv)
{
	bickford_callbacks callbacks = {.dispatch = dispatch};

	CHECK(argc == 3);
	mountpoint = argv[1];
	below = open(argv[2], O_RDONLY | O_DIRECTORY);
	CHECK(below >= 0);
	CHECK(bickford_mount_paths(mountpoint, "entry_timeout=soon", NULL, &callbacks, &session) ==
		BICKFORD_ERROR_ARGUMENT);
	CHECK(strstr(bickford_last_error(), "soon") != NULL);
	CHECK(bickford_mount_paths(mountpoint, "entry_timout=3", NULL, &callbacks, &session) ==
		BICKFORD_ERROR_ARGUMENT);
	CHECK(strstr(bickford_last_error(), "entry_timeout") != NULL);
	CHECK(bickford_mount_paths(mountpoint, NULL, NULL, NULL, &session) == BICKFORD_ERROR_ARGUMENT);
	CHECK(bickford_notify_path(4711, "/", 0, 0) == BICKFORD_ERROR_HANDLE);
	use("transport=dev,entry_timeout=3600,attr_timeout=3600,use_ino");
	empty_source(argv[2]);
	use("transport=auto,entry_timeout=3600,attr_timeout=3600,use_ino,max_background=16");
	empty_source(argv[2]);
	use("transport=dev,entry_timeout=3600,attr_timeout=3600,use_ino,at_once");
	empty_source(argv[2]);
	use_handles("noforget");
	empty_source(argv[2]);
	use_handles("noforget,use_ino");
	return 0;
}
