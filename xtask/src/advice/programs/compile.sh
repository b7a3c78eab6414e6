# Compiles $1 three times.
for _ in 1 2 3; do
    gcc -O2 -pthread -c -o /dev/null "$1" || exit 1
done
