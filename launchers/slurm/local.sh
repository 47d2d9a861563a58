#!/usr/bin/env bash
# A Slurm of two nodes on this machine, for tests and demos: `local.sh start` or `local.sh stop`. Needs root and
# the packages slurm-wlm and munge. Nothing outside its folder is changed, except munge's key where there is none.
#
# Both nodes are this host under two names (n1, n2), each with its own slurmd. Commands find this Slurm through
# SLURM_CONF, which `start` prints. It listens on three ports from SLURM_LOCAL_PORT (7100).
set -euo pipefail

folder=${SLURM_LOCAL:-/tmp/slurm-local}
conf=$folder/slurm.conf
mark=$folder/.made-by-local.sh
port=${SLURM_LOCAL_PORT:-7100}
cpus=$(env -u OMP_NUM_THREADS nproc) # which heeds that variable
export SLURM_CONF=$conf

end() { # PID: end the process and wait until it is gone
    kill "$1" 2>/dev/null || true
    for _ in $(seq 50); do
        kill -0 "$1" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$1" 2>/dev/null || true
}

daemons() { # process IDs of the daemons that were started here, also of those whose PID files are gone
    local name process running
    for name in slurmd slurmctld munged; do
        for process in /proc/[0-9]*; do
            { read -r running <"$process/comm"; } 2>/dev/null || continue
            [ "$running" = $name ] || continue
            if grep -szqxF "SLURM_CONF=$conf" "$process/environ" ||
                grep -szqxF "$folder/munge/socket" "$process/cmdline"; then
                echo "${process#/proc/}"
            fi
        done
    done
}

refuse_taken_ports() {
    local number holder
    for number in "$port" $((port + 1)) $((port + 2)); do
        (: </dev/tcp/127.0.0.1/"$number") 2>/dev/null || continue
        holder=$(ss -Hltnp "sport = :$number" 2>/dev/null | grep -oE 'pid=[0-9]+' | head -n 1) || true
        echo "Port $number is taken${holder:+ by process ${holder#pid=}}. End that process, or take three other ports," \
            "for example SLURM_LOCAL_PORT=$((port + 10)) $0 start" >&2
        exit 1
    done
}

start() {
    for command in munged slurmctld slurmd sbatch; do
        command -v $command >/dev/null || {
            echo "$command is not installed; on Debian: apt-get install slurm-wlm munge" >&2
            exit 1
        }
    done
    stop
    refuse_taken_ports
    mkdir -p "$folder"/{state,n1,n2,munge}
    : >"$mark"
    # munged refuses folders that others could write to, and runs as its own user.
    [ -f /etc/munge/munge.key ] || mungekey --create
    chown -R munge: "$folder/munge" /etc/munge
    runuser -u munge -- munged --socket "$folder/munge/socket" --pid-file "$folder/munge/pid" \
        --log-file "$folder/munge/log" --seed-file "$folder/munge/seed"
    cat >"$conf" <<END
ClusterName=local
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdSpoolDir=$folder/%n
SlurmdPidFile=$folder/%n/pid
SlurmdLogFile=$folder/%n/log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
KillWait=10
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SchedulerParameters=sched_interval=5,bf_interval=5
NodeName=n[1-2] NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 2))] CPUs=$cpus
PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=INFINITE PriorityTier=1
PartitionName=urgent Nodes=ALL State=UP MaxTime=INFINITE PriorityTier=10
END
    slurmctld -c
    slurmd -N n1
    slurmd -N n2
    for _ in $(seq 60); do
        if [ "$(sinfo --noheader --Node --partition=main --states=idle 2>/dev/null | wc -l)" = 2 ]; then
            echo "Slurm runs, with the nodes n1 and n2. Type this line; then sinfo, sbatch and train-bench find it:" >&2
            echo "export SLURM_CONF=$conf"
            return
        fi
        sleep 0.5
    done
    echo "The two nodes did not come up; see the logs in $folder" >&2
    exit 1
}

stop() {
    refuse_other_folder
    if [ -f "$folder/slurmctld.pid" ]; then
        scancel --partition=main,urgent 2>/dev/null || true
    fi
    local pid
    for pid in $(daemons); do
        end "$pid"
    done
    rm -rf "$folder"
}

refuse_other_folder() { # nothing is removed that no start has made
    if [ -e "$folder" ] && [ ! -f "$mark" ] && ! rmdir "$folder" 2>/dev/null; then
        echo "SLURM_LOCAL is $folder, which exists and was not made by '$0 start'; give a folder that is not there, or" \
            "remove it if an earlier version made it." >&2
        exit 1
    fi
}

case ${1:-} in
start) start ;;
stop) stop ;;
*)
    echo "usage: $0 start|stop" >&2
    exit 2
    ;;
esac
