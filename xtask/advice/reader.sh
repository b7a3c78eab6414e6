# $1 is the program that reads: each run has a database of its own.
folder=$(mktemp -d) || exit 1
"$1" "$folder"
status=$?
rm -rf "$folder"
exit $status
