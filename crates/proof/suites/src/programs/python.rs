//! Python: a virtual environment with pip, and bytecode written beside the sources.

use super::Stage;
use super::shell::must;

const SCRIPT: &str = "
python3 -m venv venv
. venv/bin/activate
python -m pip --version
python -m pip check
python -m compileall -q -f venv/lib
python - <<'END'
import sys, sqlite3, os, mmap, fcntl, multiprocessing, tempfile
assert sys.prefix.endswith('venv'), sys.prefix
tempfile.tempdir = os.getcwd()
with tempfile.TemporaryFile() as f:
    f.write(b'x' * 10000); f.flush()
    fcntl.lockf(f, fcntl.LOCK_EX)
    with mmap.mmap(f.fileno(), 0) as m:
        m[5000:5003] = b'abc'
        m.flush()
    f.seek(5000)
    assert f.read(3) == b'abc'
def work(n):
    path = 'out-%d' % n
    with open(path, 'w') as f: f.write(str(n * n))
    return int(open(path).read())
if __name__ == '__main__':
    with multiprocessing.Pool(4) as pool:
        assert pool.map(work, range(64)) == [n * n for n in range(64)]
END
";

pub fn run(stage: &Stage<'_>) -> Result<String, String> {
    must(&stage.work, SCRIPT)?;
    must(&stage.other, "cat out-7 | grep -qx 49; venv/bin/python -c 'import pip; print(pip.__version__)'")?;
    Ok("venv with pip, bytecode, memory maps, locks, a pool of processes; used from the other mount"
        .to_owned())
}
