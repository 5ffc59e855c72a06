//! Work on data.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{self, Mode, OFlags};

use super::{Client, names};
use crate::sys;

/// The name of a client's large file.
pub(crate) const LARGE: &str = "large";
const PAGE: usize = 4096;

fn open(client: &Client, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(fs::openat(
        &client.directory,
        name,
        flags | OFlags::CLOEXEC,
        mode,
    )?)
}

fn whole(moved: usize, wanted: usize, client: &Client) -> io::Result<()> {
    if moved == wanted {
        return Ok(());
    }
    let place = client.path.display();
    Err(io::Error::other(format!(
        "{place}: {moved} of {wanted} bytes"
    )))
}

/// The same numbers in every run and configuration.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn page(&mut self, bytes: u64) -> u64 {
        self.next() % (bytes / PAGE as u64) * PAGE as u64
    }
}

pub(super) fn create(client: &Client) -> io::Result<u64> {
    let page = [7; PAGE];
    for index in 0..client.ops {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = open(client, &names::file(index), flags)?;
        whole(rustix::io::write(&file, &page)?, PAGE, client)?;
    }
    Ok(client.ops)
}

pub(super) fn open_read(client: &Client, count: u64) -> io::Result<u64> {
    let again = matches!(client.work, crate::rows::Work::OpenRead { again: true });
    let most = if again { names::AGAIN } else { u64::MAX };
    let names: Vec<String> = (0..client.files.min(most)).map(names::file).collect();
    let count = if again {
        count
    } else {
        count.min(client.files)
    };
    let mut page = [0_u8; PAGE];
    for name in names.iter().cycle().take(count as usize) {
        let file = open(client, name, OFlags::RDONLY)?;
        whole(rustix::io::read(&file, &mut page)?, PAGE, client)?;
    }
    Ok(count)
}

/// A part of `room` that begins a page, as buffers of dd(1) and cp(1) do: some processors copy several times more slowly
/// where source and target begin at different places in one.
fn from_a_page(room: &mut [u8], length: usize) -> &mut [u8] {
    let begin = room.as_ptr().align_offset(PAGE);
    room.get_mut(begin..begin + length).unwrap_or_default()
}

pub(super) fn read_all(client: &Client, block: usize) -> io::Result<u64> {
    let file = open(client, LARGE, OFlags::RDONLY)?;
    let mut room = vec![0_u8; block + PAGE];
    let buffer = from_a_page(&mut room, block);
    let count = client.bytes / block as u64;
    for _ in 0..count {
        whole(rustix::io::read(&file, &mut *buffer)?, block, client)?;
    }
    Ok(count)
}

pub(super) fn write_all(client: &Client, block: usize) -> io::Result<u64> {
    let file = open(client, LARGE, OFlags::WRONLY)?;
    let mut room = vec![7_u8; block + PAGE];
    let buffer = from_a_page(&mut room, block);
    let count = client.bytes / block as u64;
    for _ in 0..count {
        whole(rustix::io::write(&file, buffer)?, block, client)?;
    }
    // With a write-back cache the work is done here.
    drop(file);
    Ok(count)
}

pub(super) fn read_random(client: &Client) -> io::Result<u64> {
    let file = open(client, LARGE, OFlags::RDONLY)?;
    let mut page = [0_u8; PAGE];
    let mut random = Random(client.seed);
    for _ in 0..client.ops {
        let at = random.page(client.bytes);
        whole(rustix::io::pread(&file, &mut page, at)?, PAGE, client)?;
    }
    Ok(client.ops)
}

pub(super) fn write_random(client: &Client) -> io::Result<u64> {
    let file = open(client, LARGE, OFlags::WRONLY)?;
    let page = [7_u8; PAGE];
    let mut random = Random(client.seed);
    for _ in 0..client.ops {
        let at = random.page(client.bytes);
        whole(rustix::io::pwrite(&file, &page, at)?, PAGE, client)?;
    }
    drop(file);
    Ok(client.ops)
}

pub(super) fn append_sync(client: &Client) -> io::Result<u64> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
    let file = open(client, "log", flags)?;
    let page = [7_u8; PAGE];
    for _ in 0..client.ops {
        whole(rustix::io::write(&file, &page)?, PAGE, client)?;
        fs::fsync(&file)?;
    }
    Ok(client.ops)
}

pub(super) fn fault(client: &Client) -> io::Result<u64> {
    let file = open(client, LARGE, OFlags::RDONLY)?;
    let length = usize::try_from(client.bytes).map_err(io::Error::other)?;
    sys::fault(&file, length, PAGE)?;
    Ok((length / PAGE) as u64)
}
