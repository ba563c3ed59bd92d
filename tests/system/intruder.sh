#!/bin/sh
while read -r line; do echo "configuration: $line"; done <"$2"
for file in /etc/shadow /etc/passwd @/secret @/conntrackd.ctl /proc/1/environ; do
    if cat "$file"; then echo "broken in: read $file"; fi
done
for file in @/written "$2" @/secret /tmp/written /dev/null /proc/self/comm; do
    if echo >>"$file"; then echo "broken in: wrote $file"; fi
done
for command in "mkdir @/made" "ln -s x @/link" "rm @/secret" "mv @/secret @/moved" "ls @" "ls /root"; do
    if $command; then echo "broken in: $command"; fi
done
for fd in 3 4 5 6 7 8 9; do
    if true 2>&- <&"$fd"; then echo "broken in: descriptor $fd"; fi
done
if unshare -r true; then echo "broken in: other namespaces"; fi
if kill -0 "$PPID"; then echo "broken in: signals"; fi
echo "did its best"
