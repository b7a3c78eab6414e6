#!/bin/sh
# Runs a command beside a Slurm of one machine, which ends with it.
set -eu

if [ "$(id -u)" -ne 0 ]; then
    echo "skipped: Slurm has to be started by root"
    exit 0
fi

folder=$(mktemp -d)
chmod 755 "$folder"
mkdir "$folder/state" "$folder/spool"
# A key that nobody else has, and a socket that is nobody else's.
dd if=/dev/urandom of="$folder/key" bs=1024 count=1 status=none
chmod 400 "$folder/key"
host=$(hostname -s)

munge() {
    munged --force --key-file="$folder/key" --socket="$folder/munge" --pid-file="$folder/munged.pid" \
        --log-file="$folder/munged.log" --seed-file="$folder/seed" "$@"
}

cat >"$folder/slurm.conf" <<EOF
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge
SlurmctldPort=26817
SlurmdPort=26818
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc)
PartitionName=all Nodes=$host Default=YES State=UP
EOF
export SLURM_CONF="$folder/slurm.conf"

end() {
    scontrol shutdown >/dev/null 2>&1 || true
    munge --stop >/dev/null 2>&1 || true
    rm -rf "$folder"
}
trap end EXIT

munge
slurmctld
slurmd
tries=0
until [ "$(sinfo --noheader --format=%t 2>/dev/null)" = idle ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt 60 ]; then
        echo "Slurm did not start:" >&2
        tail -n 20 "$folder"/*.log >&2
        exit 1
    fi
    sleep 1
done
"$@"
