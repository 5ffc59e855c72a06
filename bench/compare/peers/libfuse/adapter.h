/* What the parts of the libfuse adapter share. */
#ifndef ADAPTER_H
#define ADAPTER_H

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct settings {
	double timeout;
	bool best, dev_fuse, writeback, zero_open, passthrough, direct;
};

extern struct settings settings;

/* One lower inode that the kernel knows; the node id is its address. */
struct node {
	struct node *next;
	int fd; /* O_PATH */
	int data_fd; /* for requests without a handle; -1 until one comes */
	int backing_id;
	unsigned backing_users;
	ino_t ino;
	dev_t dev;
	uint64_t lookups;
};

/* An open file. Its address is the handle; no handle stands for the node's own descriptor. */
struct open_file {
	int fd;
	bool backed;
};

void open_root(const char *source);
struct node *node_of(fuse_ino_t id);
/* Opens the lower file of a node again, with flags that need more than O_PATH. */
int reopen(const struct node *node, int flags);
/* The descriptor for a request on a file, or -1 with errno set. */
int file_of(fuse_ino_t id, const struct fuse_file_info *fi);
/* Looks a name up and counts it; 0 or an errno. */
int make_entry(struct node *parent, const char *name, struct fuse_entry_param *entry);
void forget_node(fuse_ino_t id, uint64_t count);
void lock_node(void);
void unlock_node(void);

void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void do_forget(fuse_req_t req, fuse_ino_t id, uint64_t count);
void do_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void do_getattr(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi);
void do_setattr(fuse_req_t req, fuse_ino_t id, struct stat *attr, int valid, struct fuse_file_info *fi);
void do_readlink(fuse_req_t req, fuse_ino_t id);
void do_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void do_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void do_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void do_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void do_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	       const char *new_name, unsigned flags);
void do_link(fuse_req_t req, fuse_ino_t id, fuse_ino_t new_parent, const char *new_name);
void do_statfs(fuse_req_t req, fuse_ino_t id);

void do_open(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi);
void do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
void do_read(fuse_req_t req, fuse_ino_t id, size_t size, off_t offset, struct fuse_file_info *fi);
void do_write_buf(fuse_req_t req, fuse_ino_t id, struct fuse_bufvec *data, off_t offset,
		  struct fuse_file_info *fi);
void do_flush(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi);
void do_release(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi);
void do_fsync(fuse_req_t req, fuse_ino_t id, int datasync, struct fuse_file_info *fi);

void do_opendir(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi);
void do_readdir(fuse_req_t req, fuse_ino_t id, size_t size, off_t offset, struct fuse_file_info *fi);
void do_readdirplus(fuse_req_t req, fuse_ino_t id, size_t size, off_t offset, struct fuse_file_info *fi);
void do_releasedir(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi);

#endif
