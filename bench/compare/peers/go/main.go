// A directory passed through with go-fuse's loopback file system, for comparison. With the fastest settings
// that its documentation offers: requests of 1 MiB, splice, names and attributes cached for good, negative
// entries, cached directories and data; pass-through is go-fuse's own default where the kernel has it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

type options struct {
	writeback, passthrough, direct bool
}

// node is a loopback node whose opens carry the flags of the options.
type node struct {
	*fs.LoopbackNode
	options *options
}

var (
	_ = (fs.NodeOpener)((*node)(nil))
	_ = (fs.NodeCreater)((*node)(nil))
	_ = (fs.NodeOpendirHandler)((*node)(nil))
	_ = (fs.NodeWrapChilder)((*node)(nil))
)

func (n *node) WrapChild(ctx context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &node{LoopbackNode: child.(*fs.LoopbackNode), options: n.options}
}

func (n *node) fileFlags() uint32 {
	if n.options.direct {
		return fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH | fuse.FOPEN_PARALLEL_DIRECT_WRITES
	}
	return fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_NOFLUSH
}

// lowerFlags lets the kernel read through descriptors that are open for writing, as a write-back cache does.
func (n *node) lowerFlags(flags uint32) uint32 {
	flags &^= syscall.O_DIRECT
	if n.options.writeback && flags&syscall.O_ACCMODE == syscall.O_WRONLY {
		flags = flags&^syscall.O_ACCMODE | syscall.O_RDWR
	}
	return flags
}

func (n *node) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	file, more, errno := n.LoopbackNode.Open(ctx, n.lowerFlags(flags))
	return file, more | n.fileFlags(), errno
}

func (n *node) Create(ctx context.Context, name string, flags uint32, mode uint32, out *fuse.EntryOut) (
	*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	inode, file, more, errno := n.LoopbackNode.Create(ctx, name, n.lowerFlags(flags), mode, out)
	return inode, file, more | n.fileFlags(), errno
}

func (n *node) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	directory, more, errno := n.LoopbackNode.OpendirHandle(ctx, flags)
	return directory, more | fuse.FOPEN_CACHE_DIR | fuse.FOPEN_KEEP_CACHE, errno
}

func parse() (*options, string, string) {
	list := flag.String("o", "", "writeback, passthrough, direct")
	flag.Parse()
	chosen := &options{}
	for _, word := range strings.Split(*list, ",") {
		switch word {
		case "", "best": // There is no other way here.
		case "writeback":
			chosen.writeback = true
		case "passthrough":
			chosen.passthrough = true
		case "direct":
			chosen.direct = true
		case "zero_open":
			fmt.Fprintln(os.Stderr, "go-fuse's loopback has no zero-message open")
			os.Exit(3)
		default:
			log.Fatalf("unknown option %s", word)
		}
	}
	if flag.NArg() != 2 {
		log.Fatal("usage: go-fuse [-o OPTION[,OPTION]] SOURCE MOUNTPOINT")
	}
	return chosen, flag.Arg(0), flag.Arg(1)
}

func main() {
	chosen, source, mountpoint := parse()
	root, err := fs.NewLoopbackRoot(source)
	if err != nil {
		log.Fatalf("%s: %v", source, err)
	}
	root = &node{LoopbackNode: root.(*fs.LoopbackNode), options: chosen}
	forever := 365 * 24 * time.Hour
	settings := &fs.Options{
		AttrTimeout:     &forever,
		EntryTimeout:    &forever,
		NegativeTimeout: &forever,
		NullPermissions: true,
		MountOptions: fuse.MountOptions{
			FsName:                   source,
			Name:                     "go-fuse",
			DirectMountStrict:        true,
			MaxWrite:                 fuse.MAX_KERNEL_WRITE,
			MaxBackground:            64,
			DisableXAttrs:            true,
			EnableSymlinkCaching:     true,
			ExplicitDataCacheControl: true,
			// An answer of 1 MiB and its header do not fit in a pipe of 1 MiB.
			DisableSplice: chosen.direct,
		},
	}
	if chosen.writeback {
		settings.ExtraCapabilities |= fuse.CAP_WRITEBACK_CACHE
	}
	if !chosen.passthrough {
		settings.DisabledCapabilities |= fuse.CAP_PASSTHROUGH
	}
	server, err := fs.Mount(mountpoint, root, settings)
	if err != nil {
		log.Fatalf("mount %s: %v", mountpoint, err)
	}
	server.Wait()
}
