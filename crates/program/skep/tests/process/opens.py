# Two mounts make the same names at the same moment: one as root, for nobody else to read, one as another user. Whoever
# is told that a file was opened may open it: it is his, or he made it. Arguments: both directories, how many names.
# Prints what went wrong, then how often each of the two had made the file.
import mmap, os, struct, sys

places, names = sys.argv[1:3], int(sys.argv[3])
USER = 4711
turns = mmap.mmap(-1, 4096)


def at_once(who, round):
    struct.pack_into("i", turns, 4 * who, round + 1)
    while struct.unpack_from("i", turns, 4 * (1 - who))[0] <= round:
        pass


def tell(line):
    # In one piece: print writes the end of a line apart where Python does not buffer, and both tell at once.
    os.write(1, f"{line}\n".encode())


def work(who):
    # What is above is root's.
    os.chdir(places[who])
    if who == 1:
        os.setgid(USER)
        os.setuid(USER)
    made = 0
    for round in range(names):
        flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if round % 2 else 0)
        at_once(who, round)
        try:
            fd = os.open(str(round), flags, 0o600)
        except PermissionError:
            continue
        except OSError as error:
            tell(f"{who} is told {error} of name {round}")
            continue
        owner = os.fstat(fd).st_uid
        mine = owner == (0, USER)[who]
        made += mine
        if who == 1 and not mine:
            tell(f"user {USER} has name {round} open, which belongs to {owner}")
        os.close(fd)
    tell(f"made {who} {made}")


children = []
for who in range(2):
    child = os.fork()
    if child == 0:
        work(who)
        os._exit(0)
    children.append(child)
if any(os.waitpid(child, 0)[1] for child in children):
    tell("a process failed")
