/*
 * A directory passed through with libfuse's low-level interface, for comparison.
 *
 *   passthrough [-o OPTION[,OPTION]] SOURCE MOUNTPOINT
 *
 * Without options it is what a file system gets that asks for nothing: the multi-threaded loop with its
 * own settings, timeouts of one second, every open and close a request. The options are what the headers
 * offer to be faster: see usage(). Runs in the foreground until it is unmounted.
 */
#define _GNU_SOURCE

#include "adapter.h"
#include "common.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct settings settings = { .timeout = 1.0 };

static const char usage[] =
	"usage: passthrough [-o OPTION[,OPTION]] SOURCE MOUNTPOINT\n"
	"  best         descriptors cloned, threads kept, splice, names and attributes cached for good,\n"
	"               negative entries, cached directories, no FLUSH, io_uring where libfuse has it\n"
	"  writeback    write-back cache\n"
	"  zero_open    OPEN is answered ENOSYS: opening costs no request\n"
	"  passthrough  the kernel reads and writes the lower file (libfuse 3.17)\n"
	"  direct       no page cache (FOPEN_DIRECT_IO)\n";

static void do_init(void *data, struct fuse_conn_info *conn)
{
	(void)data;
	if (!settings.best)
		return;
	want(conn, FUSE_CAP_SPLICE_READ);
	/* An answer of 1 MiB and its header do not fit in a pipe of 1 MiB. */
	if (settings.direct)
		refuse(conn, FUSE_CAP_SPLICE_WRITE);
	else
		want(conn, FUSE_CAP_SPLICE_WRITE);
	/* Pages of the lower file's cache are not ours to give away. */
	refuse(conn, FUSE_CAP_SPLICE_MOVE);
	want(conn, FUSE_CAP_PARALLEL_DIROPS);
	want(conn, FUSE_CAP_READDIRPLUS);
	want(conn, FUSE_CAP_READDIRPLUS_AUTO);
	want(conn, FUSE_CAP_ASYNC_DIO);
	want(conn, FUSE_CAP_CACHE_SYMLINKS);
	refuse(conn, FUSE_CAP_AUTO_INVAL_DATA);
	conn->max_background = 64;
	if (settings.writeback)
		want(conn, FUSE_CAP_WRITEBACK_CACHE);
	if (settings.zero_open)
		want(conn, FUSE_CAP_NO_OPEN_SUPPORT);
#ifdef FUSE_CAP_PASSTHROUGH
	if (settings.passthrough) {
		want(conn, FUSE_CAP_PASSTHROUGH);
		conn->max_backing_stack_depth = 1;
	}
#endif
}

static const struct fuse_lowlevel_ops operations = {
	.init = do_init,
	.lookup = do_lookup,
	.forget = do_forget,
	.forget_multi = do_forget_multi,
	.getattr = do_getattr,
	.setattr = do_setattr,
	.readlink = do_readlink,
	.mknod = do_mknod,
	.mkdir = do_mkdir,
	.unlink = do_unlink,
	.rmdir = do_rmdir,
	.symlink = do_symlink,
	.rename = do_rename,
	.link = do_link,
	.open = do_open,
	.create = do_create,
	.read = do_read,
	.write_buf = do_write_buf,
	.flush = do_flush,
	.release = do_release,
	.fsync = do_fsync,
	.opendir = do_opendir,
	.readdir = do_readdir,
	.readdirplus = do_readdirplus,
	.releasedir = do_releasedir,
	.statfs = do_statfs,
};

static void take_options(char *list)
{
	for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
		if (!strcmp(word, "best"))
			settings.best = true;
		else if (!strcmp(word, "dev_fuse"))
			settings.dev_fuse = true;
		else if (!strcmp(word, "writeback"))
			settings.writeback = true;
		else if (!strcmp(word, "zero_open"))
			settings.zero_open = true;
		else if (!strcmp(word, "direct"))
			settings.direct = true;
		else if (!strcmp(word, "passthrough"))
			settings.passthrough = true;
		else
			errx(2, "unknown option %s\n%s", word, usage);
	}
#ifndef FUSE_CAP_PASSTHROUGH
	if (settings.passthrough)
		errx(3, "this libfuse (%s) has no pass-through; it came with 3.17", fuse_pkgversion());
#endif
#if FUSE_VERSION < FUSE_MAKE_VERSION(3, 18)
	if (settings.dev_fuse)
		errx(3, "this libfuse (%s) goes over /dev/fuse as it is; io_uring came with 3.18", fuse_pkgversion());
#endif
	if (settings.best)
		settings.timeout = 365.0 * 24 * 3600;
}

int main(int argc, char *argv[])
{
	char *arguments[] = { argv[0], "-osubtype=libfuse", NULL, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(2, arguments);
	int option;

	while ((option = getopt(argc, argv, "o:")) != -1) {
		if (option != 'o')
			errx(2, "%s", usage);
		take_options(optarg);
	}
	if (argc - optind != 2)
		errx(2, "%s", usage);
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
	if (settings.best && !settings.dev_fuse) {
		arguments[2] = "-oio_uring";
		args.argc = 3;
	}
#endif
	raise_descriptor_limit();
	umask(0);
	open_root(argv[optind]);

	struct fuse_session *session = fuse_session_new(&args, &operations, sizeof operations, NULL);
	if (!session)
		errx(1, "cannot make a session");
	if (fuse_set_signal_handlers(session) != 0)
		errx(1, "cannot set signal handlers");
	if (fuse_session_mount(session, argv[optind + 1]) != 0)
		errx(1, "cannot mount at %s", argv[optind + 1]);
	struct fuse_loop_config *config = loop_config(settings.best);
	int result = fuse_session_loop_mt(session, config);
	fuse_loop_cfg_destroy(config);
	fuse_session_unmount(session);
	fuse_remove_signal_handlers(session);
	fuse_session_destroy(session);
	return result ? 1 : 0;
}
