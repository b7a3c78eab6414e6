# Compiles $1.
exec gcc -O2 -pthread -c -o /dev/null "$1"
