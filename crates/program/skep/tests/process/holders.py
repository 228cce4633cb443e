# Four processes on two mounts take one lock in turn, again and again, and count in the file under it; two of them open,
# write and close a second descriptor of the file under it, and must read the same there. Memory that they share, outside
# of the file system, says who holds the lock and how far they counted.
# Arguments: the kind of lock, both mounts, how often each takes it. Prints what went wrong.
import fcntl, mmap, os, struct, sys

kind, mounts, times = sys.argv[1], sys.argv[2:4], int(sys.argv[4])
OFD_SETLKW = 38
holder = mmap.mmap(-1, 4096)


def take(fd):
    if kind == "flock":
        fcntl.flock(fd, fcntl.LOCK_EX)
    elif kind == "fcntl":
        fcntl.lockf(fd, fcntl.LOCK_EX)
    else:
        fcntl.fcntl(fd, OFD_SETLKW, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))


def give_up(fd):
    if kind == "flock":
        fcntl.flock(fd, fcntl.LOCK_UN)
    elif kind == "fcntl":
        fcntl.lockf(fd, fcntl.LOCK_UN)
    else:
        fcntl.fcntl(fd, OFD_SETLKW, struct.pack("hhqqi4x", fcntl.F_UNLCK, 0, 0, 0, 0))


def work(number):
    path = f"{mounts[number % 2]}/turns.{kind}"
    beside = number >= 2
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    for turn in range(times):
        take(fd)
        (other,) = struct.unpack("i", holder[:4])
        if other:
            print(f"process {number} got the lock while {other - 1} held it, turn {turn}", flush=True)
        holder[:4] = struct.pack("i", number + 1)
        (count,) = struct.unpack("q", holder[8:16])
        second = os.open(path, os.O_RDWR) if beside else fd
        # Either descriptor first: a read through one may bring the other up to date.
        for name, reader in (("second", second), ("kept", fd))[:: 1 if turn % 2 else -1]:
            found = os.pread(reader, 12, 0)
            if int(found or 0) != count:
                print(f"process {number}, {name} descriptor: {found} instead of {count}, turn {turn}", flush=True)
        os.pwrite(second, str(count + 1).rjust(12).encode(), 0)
        holder[8:16] = struct.pack("q", count + 1)
        # The close of any descriptor gives up the process's record locks, as POSIX wants it: those must be given up first.
        if beside and kind != "fcntl":
            os.close(second)
        holder[:4] = struct.pack("i", 0)
        give_up(fd)
        if beside and kind == "fcntl":
            os.close(second)


children = []
for number in range(4):
    child = os.fork()
    if child == 0:
        work(number)
        os._exit(0)
    children.append(child)
failed = [child for child in children if os.waitpid(child, 0)[1]]
for mount in mounts:
    found = open(f"{mount}/turns.{kind}").read()
    if int(found) != 4 * times:
        print(f"{mount}: {found} instead of {4 * times} at the end")
if failed:
    print(f"{len(failed)} processes failed")
