# Four processes on two mounts take one lock in turn, again and again; two of them open, write and close a second
# descriptor of the file under it. Memory that they share, outside of the file system, says who holds it.
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
    # A second descriptor's close would give up the process's record locks, as POSIX wants it.
    beside = number >= 2 and kind != "fcntl"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    for turn in range(times):
        take(fd)
        (other,) = struct.unpack("i", holder[:4])
        if other:
            print(f"process {number} got the lock while {other - 1} held it, turn {turn}", flush=True)
        holder[:4] = struct.pack("i", number + 1)
        second = os.open(path, os.O_RDWR) if beside else fd
        os.pwrite(second, str(turn).rjust(12).encode(), 0)
        if beside:
            os.close(second)
        holder[:4] = struct.pack("i", 0)
        give_up(fd)


children = []
for number in range(4):
    child = os.fork()
    if child == 0:
        work(number)
        os._exit(0)
    children.append(child)
failed = [child for child in children if os.waitpid(child, 0)[1]]
if failed:
    print(f"{len(failed)} processes failed")
