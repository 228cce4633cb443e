# A process that does what it is told, a line at a time, and answers each with a line: "ok", a value, or the
# name of an error. Locks belong to processes, so tests of locks need processes.
import ctypes, errno, fcntl, os, signal, struct, sys, threading

LIBC = ctypes.CDLL(None, use_errno=True)
FILES = {}
KINDS = {"r": fcntl.F_RDLCK, "w": fcntl.F_WRLCK, "u": fcntl.F_UNLCK}
FLOCKS = {"r": fcntl.LOCK_SH, "w": fcntl.LOCK_EX, "u": fcntl.LOCK_UN}
OFD_GETLK, OFD_SETLK, OFD_SETLKW = 36, 37, 38


class Alarm(Exception):
    pass


def on_alarm(_number, _frame):
    raise Alarm


signal.signal(signal.SIGALRM, on_alarm)


def record(kind, start, length):
    return struct.pack("hhqqi4x", KINDS[kind], os.SEEK_SET, int(start), int(length), 0)


def shown(raw):
    kind, _, start, length, pid = struct.unpack("hhqqi4x", raw)
    if kind == fcntl.F_UNLCK:
        return "free"
    return f"{'w' if kind == fcntl.F_WRLCK else 'r'} {start} {length} {pid}"


def waiters(path, count):
    """So many threads wait for one flock, each with a handle of its own; each holds it for a moment."""
    inside, most, passed = [0], [0], [0]
    guard = threading.Lock()

    def wait():
        handle = os.open(path, os.O_RDWR)
        fcntl.flock(handle, fcntl.LOCK_EX)
        with guard:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        with guard:
            inside[0] -= 1
            passed[0] += 1
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)

    threading.stack_size(1 << 18)
    threads = [threading.Thread(target=wait) for _ in range(count)]
    for thread in threads:
        thread.start()
    print("waiting", flush=True)
    for thread in threads:
        thread.join()
    return f"{passed[0]} {most[0]}"


def obey(words):
    verb, rest = words[0], words[1:]
    if verb == "open":
        FILES[rest[0]] = os.open(rest[1], os.O_RDONLY if "ro" in rest[2:] else os.O_RDWR | os.O_CREAT, 0o666)
    elif verb == "close":
        os.close(FILES.pop(rest[0]))
    elif verb == "setlk":
        fcntl.fcntl(FILES[rest[0]], fcntl.F_SETLK, record(*rest[1:4]))
    elif verb == "setlkw":
        fcntl.fcntl(FILES[rest[0]], fcntl.F_SETLKW, record(*rest[1:4]))
    elif verb == "getlk":
        return shown(fcntl.fcntl(FILES[rest[0]], fcntl.F_GETLK, record(*rest[1:4])))
    elif verb == "ofd":
        fcntl.fcntl(FILES[rest[0]], OFD_SETLK, record(*rest[1:4]))
    elif verb == "ofdw":
        fcntl.fcntl(FILES[rest[0]], OFD_SETLKW, record(*rest[1:4]))
    elif verb == "flock":
        fcntl.flock(FILES[rest[0]], FLOCKS[rest[1]] | fcntl.LOCK_NB)
    elif verb == "flockw":
        fcntl.flock(FILES[rest[0]], FLOCKS[rest[1]])
    elif verb == "alarmed":
        signal.setitimer(signal.ITIMER_REAL, float(rest[0]))
        return obey(rest[1:])
    elif verb == "write":
        os.pwrite(FILES[rest[0]], rest[2].encode(), int(rest[1]))
    elif verb == "read":
        return os.pread(FILES[rest[0]], int(rest[2]), int(rest[1])).decode()
    elif verb == "fsync":
        os.fsync(FILES[rest[0]])
    elif verb == "waiters":
        return waiters(rest[0], int(rest[1]))
    else:
        return f"what is {verb}?"
    return "ok"


for line in sys.stdin:
    try:
        answer = obey(line.split())
    except Alarm:
        answer = "ALARM"
    except OSError as error:
        # Two names of one number.
        answer = errno.errorcode.get(error.errno, str(error.errno)).replace("EDEADLOCK", "EDEADLK")
    print(answer, flush=True)
