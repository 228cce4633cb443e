# A program that takes a signal every 50 ms, as programs with timers, children or profilers do, and goes on calling the
# file system. Through the C library itself: Python repeats what ends with EINTR. Arguments: directory, number of
# the kind of calls. Prints "ready" when it is at work, then a line for each call that failed; reads its end from
# its input, and prints how long the longest call took.
import ctypes, os, random, signal, sys, threading, time

LIBC = ctypes.CDLL(None, use_errno=True)
for name in ("pwrite", "pread", "write", "read"):
    getattr(LIBC, name).restype = ctypes.c_ssize_t
LIBC.opendir.restype = ctypes.c_void_p
LIBC.readdir.argtypes = LIBC.closedir.argtypes = [ctypes.c_void_p]
LIBC.readdir.restype = ctypes.c_void_p

base = f"{sys.argv[1]}/signals.{os.getpid()}"
kind = int(sys.argv[2])
os.mkdir(base)
first, second = f"{base}/a".encode(), f"{base}/b".encode()
data = ctypes.create_string_buffer(65536)
stat = ctypes.create_string_buffer(256)
longest = 0.0


def call(name, *arguments):
    global longest
    begun = time.monotonic()
    ctypes.set_errno(0)
    result = getattr(LIBC, name)(*arguments)
    failed = result is None or result == -1
    if failed:
        print(f"{name}: {os.strerror(ctypes.get_errno())} after {time.monotonic() - begun:.2f} s", flush=True)
    longest = max(longest, time.monotonic() - begun)
    return None if failed else result


def at(offset):
    return ctypes.c_long(offset)


def once(file):
    if kind == 0:
        call("pwrite", file, data, 65536, at(0))
        call("fsync", file)
    elif kind == 1:
        call("pwrite", file, data, 100, at(random.randrange(1_000_000)))
        call("fdatasync", file)
    elif kind == 2:
        call("stat", first, stat)
        call("access", first, 0)
    elif kind == 3:
        made = call("open", second, os.O_RDWR | os.O_CREAT, 0o644)
        if made is not None:
            call("write", made, data, 1)
            call("close", made)
        call("rename", second, f"{base}/c".encode())
        call("unlink", f"{base}/c".encode())
    elif kind == 4:
        call("pread", file, data, 65536, at(0))
        LIBC.posix_fadvise(file, at(0), at(0), os.POSIX_FADV_DONTNEED)
    elif kind == 5:
        call("mkdir", second, 0o755)
        call("rmdir", second)
    elif kind == 6:
        directory = call("opendir", base.encode())
        if directory:
            ctypes.set_errno(0)
            while LIBC.readdir(directory):
                pass
            if ctypes.get_errno():
                print(f"readdir: {os.strerror(ctypes.get_errno())}", flush=True)
            call("closedir", directory)
    elif kind == 7:
        call("ftruncate", file, at(random.randrange(100_000)))
        call("chmod", first, 0o600)
        call("setxattr", first, b"user.x", b"1", 1, 0)
    else:
        # A lock that nobody else wants: not a wait, also where one is asked for. An unlock comes to the mount as one.
        call("flock", file, 2 | random.choice((0, 4)))
        call("flock", file, 8)


# The signals are the main thread's: another one, that blocks them, waits for the end.
over = threading.Event()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
waiter = threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True)
waiter.start()
file = os.open(first, os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(file, bytes(65536), 0)
ticks = [0]


def tick(_number, _frame):
    ticks[0] += 1


signal.signal(signal.SIGALRM, tick)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
print("ready", flush=True)
while not over.is_set():
    once(file)
signal.setitimer(signal.ITIMER_REAL, 0)
print(f"done {longest:.1f} {ticks[0]}", flush=True)
