#!/bin/bash
# Runs in the virtual machine of `cargo xtask systemd`, once in each boot; /boot-number says which comes next.
set -uo pipefail
export PATH=/usr/local/bin:$PATH HOME=/root
number=$(cat /boot-number 2> /dev/null || echo 1)
echo "== boot $number: Linux $(uname -r), $(systemctl --version | head -n 1)"

end() {
	echo "$1"
	journalctl --no-pager -b -o cat -u 'skep-*' | tail -n 30
	systemctl poweroff
	exit
}
must() {
	echo "-- $*" >&2
	"$@" || end "FAILED in boot $number: $*"
}
# The same, for what takes a moment.
soon() {
	echo "-- soon: $*" >&2
	for _ in $(seq 60); do
		"$@" > /tmp/soon 2>&1 && return
		sleep 1
	done
	cat /tmp/soon
	end "FAILED in boot $number: $*"
}
next() {
	echo $((number + 1)) > /boot-number
	sync -f /boot-number
}
services="skep-mgmtd@m skep-metad@m1 skep-storaged@s1"
serves() {
	soon skep health
	must systemctl is-active $services
	none_failed
}
none_failed() {
	units=$(systemctl list-units --failed --plain --no-legend) || end "FAILED in boot $number: systemctl"
	must test "$units" = ""
}
holds() {
	must sh -c 'cd /mnt/skep/doc && sha256sum --quiet -c /sums'
	must cmp /mnt/unit/beside /mnt/skep/beside
}
mounted() {
	must mountpoint /mnt/skep # by fstab
	must mountpoint /mnt/unit # by a unit
	must findmnt -n -t fuse.skep
}
kernel_values() {
	cat /sys/block/vda/queue/scheduler /sys/block/vda/queue/nr_requests /sys/block/vda/queue/read_ahead_kb \
		/proc/sys/vm/dirty_background_ratio /proc/sys/vm/vfs_cache_pressure /sys/kernel/mm/transparent_hugepage/enabled
}
# What tune would still change by itself.
to_apply() {
	local table
	table=$(skep tune check) && grep -c '^change .* apply *$' <<< "$table"
}

case $number in
1)
	must kernel_values > /before
	must skep key generate /etc/skep/cluster.key
	must mkdir -p /etc/skep/mgmtd /etc/skep/metad /etc/skep/storaged /etc/skep/mount /data/skep0 /mnt/skep /mnt/unit
	echo 'shards = 64' > /etc/skep/mgmtd/m.toml
	printf 'alias = "meta-1"\nmgmtd = ["alpha"]\n' > /etc/skep/metad/m1.toml
	printf 'alias = "beta"\nmgmtd = ["alpha"]\ntargets = ["/data/skep0"]\n' > /etc/skep/storaged/s1.toml
	printf 'mgmtd = ["alpha"]\nmount_point = "/mnt/unit"\n' > /etc/skep/mount/u.toml
	must systemctl daemon-reload
	must systemctl enable --now skep-mgmtd@m skep-metad@m1
	must skep storaged --instance s1 --init-only
	must systemctl enable --now skep-storaged@s1
	must skep config check
	serves
	must skep key client --key /etc/skep/cluster.key /etc/skep/client.key
	echo 'alpha:/ /mnt/skep skep _netdev,nofail,key_file=/etc/skep/client.key 0 0' >> /etc/fstab
	must systemctl daemon-reload
	must mount -a
	must systemctl enable --now skep-mount@u
	mounted
	must cp -r /usr/share/doc /mnt/skep/doc
	(cd /usr/share/doc && find . -type f -print0 | sort -z | xargs -0 sha256sum) > /sums
	must test "$(wc -l < /sums)" -gt 100
	echo beside > /mnt/unit/beside
	holds
	for unit in $services; do
		process=$(systemctl show -p MainPID --value "$unit")
		must kill -9 "$process"
		soon sh -c "test \$(systemctl show -p MainPID --value $unit) != $process && systemctl is-active $unit"
		must test "$(systemctl show -p NRestarts --value "$unit")" -ge 1
	done
	serves
	holds
	# What measures, in units that may do little.
	must mkdir /mnt/skep/bench
	must skep bench io /mnt/skep/bench --block 8MiB --verify
	must skep bench storage run --all --size 8MiB
	must skep bench net pairs
	must skep survey --preset quick --mount /mnt/skep --out /var/tmp/survey
	next
	systemctl reboot
	;;
2)
	soon mountpoint /mnt/skep
	mounted
	serves
	holds
	must dd if=/dev/urandom of=/random bs=64k count=40 status=none
	next
	# Nothing is synced after this but by the daemons.
	must dd if=/random of=/mnt/skep/synced bs=64k conv=fsync status=none
	echo "== reset"
	echo b > /proc/sysrq-trigger
	;;
3)
	soon mountpoint /mnt/skep
	mounted
	serves
	holds
	must cmp /mnt/skep/synced /random
	must test -s /random
	must test "$(to_apply)" -gt 0
	must skep tune apply --yes
	must systemctl daemon-reload
	must udevadm control --reload
	must udevadm trigger --settle
	must systemctl restart $services
	serves
	holds
	must test "$(to_apply)" = 0
	must kernel_values > /tuned
	cmp -s /before /tuned
	must test $? = 1
	next
	systemctl reboot
	;;
4)
	soon mountpoint /mnt/skep
	mounted
	serves
	holds
	must diff /tuned <(kernel_values)
	must test "$(to_apply)" = 0
	must skep tune undo
	must diff /before <(kernel_values)
	must test ! -e /etc/udev/rules.d/90-skep.rules
	next
	systemctl reboot
	;;
5)
	soon mountpoint /mnt/skep
	mounted
	serves
	holds
	must diff /before <(kernel_values)
	must skep umount /mnt/skep
	must systemctl stop skep-mount@u
	must test "$(findmnt -n -t fuse.skep)" = ""
	must systemctl stop $services
	none_failed
	end "SKEP-SYSTEMD: passed"
	;;
esac
