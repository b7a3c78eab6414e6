# A server that is filled, and writes a snapshot from a copy of itself while it is written to; nothing else may listen
# on its socket. All of it is in the time that is measured, the clients too.
folder=$(mktemp -d) || exit 1
socket=$folder/socket
redis-server --port 0 --unixsocket "$socket" --dir "$folder" --save '' --daemonize no >"$folder/log" 2>&1 &
server=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    redis-cli -s "$socket" ping >"$folder/ping" 2>&1 && break
    sleep 0.1
done
status=1
if redis-benchmark -q -s "$socket" -t set -n 60000 -r 60000 -d 500 >"$folder/fill" 2>&1 &&
    redis-cli -s "$socket" bgsave >"$folder/save" &&
    redis-benchmark -q -s "$socket" -t set -n 40000 -r 60000 -d 500 >"$folder/load" 2>&1; then
    status=0
fi
redis-cli -s "$socket" shutdown nosave >"$folder/end" 2>&1
wait "$server"
rm -rf "$folder"
exit $status
