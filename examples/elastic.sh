#!/bin/sh
# Trains on all hosts that answer. When one is lost for good, goes on from the last checkpoint with those that are left,
# on a smaller data axis:
#
#   HOSTS=a,b,c,d OUT=/shared/runs/mine BATCH=12 examples/elastic.sh --model.width 512 --steps 10000
#
#   HOSTS     the hosts, of which each runs one process
#   OUT       the folder of the run, which all hosts share
#   BATCH     examples per step; as many hosts are used as split it evenly (12: 12, 6, 4, 3, 2 or 1)
#   RESTARTS  how often it starts again; 3 by default
#   REACH     what tells whether a host is there, with its name behind it
#   LAUNCH    what starts processes, with -n, their number, --host and the hosts behind it
#   TRAIN     the command that trains
#   PAUSE     seconds before it starts again, in which a host that comes back is waited for; 10 by default
set -u
: "${HOSTS:?which hosts}" "${OUT:?which folder}" "${BATCH:?how many examples per step}"
REACH=${REACH:-ssh -o BatchMode=yes -o ConnectTimeout=5 -o ServerAliveInterval=5}
restarts=${RESTARTS:-3}
hosts=$(echo "$HOSTS" | tr , " ")

while :; do
  alive=
  count=0
  for host in $hosts; do
    $REACH "$host" true >/dev/null 2>&1 || continue
    alive="$alive $host"
    count=$((count + 1))
  done
  [ "$count" -gt 0 ] || { echo "elastic: no host answers" >&2; exit 1; }
  # The data axis has to split the batch.
  while [ $((BATCH % count)) -ne 0 ]; do count=$((count - 1)); done
  used=$(echo $alive | cut -d ' ' -f "1-$count" | tr ' ' ,)
  resume=
  for checkpoint in "$OUT"/checkpoints/step-*; do
    if [ -e "$checkpoint" ]; then resume=--resume; fi
  done
  echo "elastic: $count of $(echo $hosts | wc -w) hosts: $used $resume"
  ${LAUNCH:-mpirun --bind-to none} -n "$count" --host "$used" ${TRAIN:-npx shardwise train} $resume \
    --out "$OUT" --mesh.data "$count" --data.batch "$BATCH" "$@" && exit 0
  code=$?
  [ "$restarts" -gt 0 ] || { echo "elastic: no restarts are left" >&2; exit "$code"; }
  restarts=$((restarts - 1))
  sleep "${PAUSE:-10}"
done
