# First process of a host: a tree of its own over that of this machine, a name, a network, disks.
# Arguments: name, number, scratch directory, exchange directory. All of it goes away with this process.
set -eu
name=$1 number=$2 scratch=$3 exchange=$4
mount --make-rprivate /
mount -t tmpfs -o size=2g skep-host "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
cd "$scratch/root"
mount --rbind /dev dev
mount --rbind /sys sys
mount -t proc proc proc
mkdir -p old-root exchange
mount --bind "$exchange" exchange
# A machine without Skep, whatever the one below has.
rm -rf etc/skep var/lib/skep usr/local/bin/skep usr/local/lib/systemd/system usr/sbin/mount.skep data
: > etc/fstab
mkdir -p data/skep0 data/skep1 etc/skep var/lib/skep var/log run mnt
pivot_root . old-root
cd /
umount -l old-root
rmdir old-root
mount -t tmpfs -o size=16m skep-run /run
mount -t tmpfs -o size=1g skep-disk0 /data/skep0
mount -t tmpfs -o size=1g skep-disk1 /data/skep1
hostname "$name"
printf '%032x\n' "$((number + 0x5ce9))" > /etc/machine-id
printf '127.0.0.1 localhost\n10.77.0.1 alpha\n10.77.0.2 beta\n10.77.0.3 gamma\n10.77.0.4 delta\n' > /etc/hosts
mkdir -p /usr/local/sbin /run/units
cp /exchange/shim/* /usr/local/sbin/
chmod 755 /usr/local/sbin/systemctl /usr/local/sbin/scp /usr/local/sbin/skep-*
ip link set lo up
# The other end of the cable is put in from outside.
while ! ip link show eth0 > /dev/null 2>&1; do sleep 0.05; done
ip addr add "10.77.0.$number/24" dev eth0
ip link set eth0 up
touch "/exchange/$name.up"
# Orphans end here; bash takes them in.
while :; do
    sleep 3600 &
    wait $! || true
done
