#!/bin/sh
# example_test.sh PROGRAM: three processes of docs/examples/all_reduce.cc add 1, 2 and 3.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/addresses"
for rank in 0 1 2; do
  timeout 30 "$1" "$rank" 3 "$folder/addresses" > "$folder/$rank" 2>&1 &
done
wait
for rank in 0 1 2; do
  cat "$folder/$rank"
  [ "$(cat "$folder/$rank")" = "rank $rank: 6" ]
done
