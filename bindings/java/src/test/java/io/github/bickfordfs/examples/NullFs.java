package io.github.bickfordfs.examples;

import io.github.bickfordfs.Call;
import io.github.bickfordfs.JavaFuse;

/**
 * Changes nothing: every operation enters Java before its system call, and a read again with what was read. It shows what
 * that costs.
 */
public final class NullFs extends JavaFuse {
    @Override
    protected void preLookup(Call call) {}

    @Override
    protected void preGetattr(Call call) {}

    @Override
    protected void preSetattr(Call call) {}

    @Override
    protected void preReadlink(Call call) {}

    @Override
    protected void preSymlink(Call call) {}

    @Override
    protected void preMknod(Call call) {}

    @Override
    protected void preMkdir(Call call) {}

    @Override
    protected void preUnlink(Call call) {}

    @Override
    protected void preRmdir(Call call) {}

    @Override
    protected void preRename(Call call) {}

    @Override
    protected void preLink(Call call) {}

    @Override
    protected void preOpen(Call call) {}

    @Override
    protected void preRead(Call call) {}

    @Override
    protected void preWrite(Call call) {}

    @Override
    protected void preStatfs(Call call) {}

    @Override
    protected void preRelease(Call call) {}

    @Override
    protected void preFsync(Call call) {}

    @Override
    protected void preSetxattr(Call call) {}

    @Override
    protected void preGetxattr(Call call) {}

    @Override
    protected void preListxattr(Call call) {}

    @Override
    protected void preRemovexattr(Call call) {}

    @Override
    protected void preFlush(Call call) {}

    @Override
    protected void preOpendir(Call call) {}

    @Override
    protected void preReaddir(Call call) {}

    @Override
    protected void preReleasedir(Call call) {}

    @Override
    protected void preFsyncdir(Call call) {}

    @Override
    protected void preGetlk(Call call) {}

    @Override
    protected void preSetlk(Call call) {}

    @Override
    protected void preAccess(Call call) {}

    @Override
    protected void preCreate(Call call) {}

    @Override
    protected void preBmap(Call call) {}

    @Override
    protected void preIoctl(Call call) {}

    @Override
    protected void prePoll(Call call) {}

    @Override
    protected void preFallocate(Call call) {}

    @Override
    protected void preReaddirplus(Call call) {}

    @Override
    protected void preLseek(Call call) {}

    @Override
    protected void preCopyFileRange(Call call) {}

    @Override
    protected void preSyncfs(Call call) {}

    @Override
    protected void preTmpfile(Call call) {}

    @Override
    protected void preStatx(Call call) {}

    @Override
    protected void postRead(Call call) {}
}
