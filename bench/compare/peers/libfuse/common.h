/* What both adapters need: over inodes (passthrough) and over paths (paths). */
#ifndef COMMON_H
#define COMMON_H

#include <err.h>
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

static inline void want(struct fuse_conn_info *conn, uint64_t flag)
{
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
	fuse_set_feature_flag(conn, flag);
#else
	if (conn->capable & flag)
		conn->want |= (unsigned)flag;
#endif
}

static inline void refuse(struct fuse_conn_info *conn, uint64_t flag)
{
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
	fuse_unset_feature_flag(conn, flag);
#else
	conn->want &= ~(unsigned)flag;
#endif
}

/* Over inodes each of them keeps a descriptor, over paths each open file. */
static inline void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* The multi-threaded loop: as it comes, or with what makes it faster. */
static inline struct fuse_loop_config *loop_config(bool best)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();

	if (!config)
		errx(1, "no memory for the loop");
	if (best) {
		fuse_loop_cfg_set_clone_fd(config, 1);
		fuse_loop_cfg_set_max_threads(config, 10);
		/* Threads that were started stay. */
		fuse_loop_cfg_set_idle_threads(config, 10);
	}
	return config;
}

#endif
