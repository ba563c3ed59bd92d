# Runs a command of mistakes.txt in a directory of its own: `sh mistakes.sh PROGRAM COMMAND`
keepwatch() {
    timeout --signal=KILL 60 "$program" "$@"
}
watch() {
    keepwatch --router_id=lan --conf_dir=. --monitor_interface=ha0 --monitor_cidr=192.0.2.10/24 --foreground \
        --no-announce "$@"
}
as_nobody() {
    setpriv --reuid=65534 --regid=65534 --clear-groups timeout --signal=KILL 60 "$program" --router_id=lan --conf_dir=theirs \
        --monitor_interface=ha0 --monitor_cidr=192.0.2.10/24 --foreground "$@"
}
program=$1
touch file
mkfifo fifo
ln -s file link
cp /bin/true open
chmod 777 open
printf '#!/bin/sh\r\nexit 0\r\n' >crlf
printf '#! /bin/shh -e\n' >misspelt
printf '#!/usr/bin/env pyhton3\n' >by-env
printf '#!/usr/bin/env sh -e\n' >by-env-with-argument
printf '#!/usr/bin/env -S pyhton3 -u\n' >by-env-with-words
chmod 755 crlf misspelt by-env*
mkdir -p theirs private
cp /bin/true own
chmod 700 private own
cp /bin/true theirs/program
chown -R 65534:65534 theirs
eval "$2"
