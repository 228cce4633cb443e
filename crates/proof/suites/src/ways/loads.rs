//! The loads: what decides over a line of the table of `docs/design/data-path.md`.

/// One load, as shell scripts in a directory of its own.
pub struct Load {
    pub name: &'static str,
    /// How it opens what it works on: the line of the table.
    pub opened: &'static str,
    /// Before each round, not counted.
    pub before: &'static str,
    /// What is timed.
    pub timed: &'static str,
    /// After each round, not counted.
    pub after: &'static str,
}

const FILL: &str = "dd if=/dev/zero of=file bs=1M count=64 status=none";
/// The same, of which the kernel keeps no page: what is read comes from the targets.
const FILL_COLD: &str =
    "dd if=/dev/zero of=file bs=1M count=64 conv=fsync status=none; echo 1 > /proc/sys/vm/drop_caches";

const POSTGRES: &str = "\
    bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)\n\
    db() { runuser -u postgres -- env PATH=$bin:$PATH PGDATA=$PWD/data PGHOST=$PWD PGUSER=postgres \"$@\"; }\n";

/// In the order of the table.
pub const LOADS: &[Load] = &[
    Load {
        name: "200 files of 4 KiB, each read 20 times",
        opened: "to read, in the metadata",
        before: "for i in $(seq 200); do head -c 4096 /dev/zero > $i; done",
        timed: "python3 -c \"for i in range(4000): open(str(i % 200 + 1), 'rb').read()\"",
        after: "",
    },
    Load {
        name: "one file of 4 KiB, 10,000 reads of 100 bytes by one handle",
        opened: "to read, in the metadata",
        before: "head -c 4096 /dev/zero > file",
        timed: "python3 -c \"import os; f = os.open('file', os.O_RDONLY); \
                [os.pread(f, 100, i % 40 * 100) for i in range(10000)]\"",
        after: "",
    },
    Load {
        name: "128 MiB as IOR writes and reads them: one O_RDWR handle, 1 MiB",
        opened: "for writing",
        before: "rm -f file",
        timed: "python3 -c \"import os; f = os.open('file', os.O_RDWR | os.O_CREAT); b = bytes(1 << 20); \
                [os.pwrite(f, b, i << 20) for i in range(128)]; [os.pread(f, 1 << 20, i << 20) for i in range(128)]\"",
        after: "",
    },
    Load {
        name: "20,000 writes of 512 bytes (dd)",
        opened: "for writing",
        before: "rm -f file",
        timed: "dd if=/dev/zero of=file bs=512 count=20000 status=none",
        after: "",
    },
    Load {
        name: "5,000 appends of 100 bytes",
        opened: "with O_APPEND",
        before: "rm -f file",
        timed: "python3 -c \"f = open('file', 'ab', buffering=0); [f.write(bytes(100)) for i in range(5000)]\"",
        after: "",
    },
    Load {
        name: "random 4 KiB, half reads, half writes, 32 MiB (fio)",
        opened: "for writing",
        before: FILL,
        timed: "fio --name j --filename file --rw randrw --bs 4k --size 64m --io_size 32m --output fio.log",
        after: "",
    },
    Load {
        name: "the same through a mapping (fio, mmap)",
        opened: "for writing",
        before: FILL,
        timed: "fio --name j --filename file --rw randrw --bs 4k --size 64m --io_size 32m --ioengine mmap --output fio.log",
        after: "",
    },
    Load {
        name: "PostgreSQL: 400 transactions of pgbench, two clients",
        opened: "for writing",
        before: "db initdb >/dev/null; db pg_ctl start -w -l log -o \"-c listen_addresses= -c unix_socket_directories=$PWD\" \
                 >/dev/null; db pgbench -q -i -s 1 postgres 2>/dev/null >/dev/null",
        timed: "db pgbench -n -c 2 -t 200 postgres >/dev/null 2>&1",
        after: "db pg_ctl stop -w -m fast >/dev/null; rm -rf data",
    },
    Load {
        name: "HDF5: 32 MiB in chunks of 64 x 64, written and read (h5perf_serial)",
        opened: "for writing",
        before: "",
        timed: "HDF5_PREFIX=. h5perf_serial -A hdf5 -e 2K,2K -x 64,2K -c 64,64 >/dev/null; \
                HDF5_PREFIX=. h5perf_serial -w -A hdf5 -e 2K,2K -x 64,2K -c 64,64 >/dev/null",
        after: "",
    },
    Load {
        name: "64 MiB, read once in 1 MiB (dd)",
        opened: "to read, in chunks",
        before: FILL_COLD,
        timed: "dd if=file of=/dev/null bs=1M status=none",
        after: "",
    },
    Load {
        name: "64 MiB, read five times",
        opened: "to read, in chunks",
        before: FILL_COLD,
        timed: "for i in 1 2 3 4 5; do dd if=file of=/dev/null bs=1M status=none; done",
        after: "",
    },
    Load {
        name: "10 MiB in reads of 512 bytes (dd)",
        opened: "to read, in chunks",
        before: FILL_COLD,
        timed: "dd if=file of=/dev/null bs=512 count=20000 status=none",
        after: "",
    },
    Load {
        name: "random reads of 4 KiB, 32 MiB of 64 (fio)",
        opened: "to read, in chunks",
        before: FILL_COLD,
        timed: "fio --name j --filename file --rw randread --bs 4k --size 64m --io_size 32m --output fio.log",
        after: "",
    },
];

/// The script with what the database's commands stand for.
pub fn script(part: &str) -> String {
    if part.contains("db ") { format!("{POSTGRES}{part}") } else { part.to_owned() }
}
