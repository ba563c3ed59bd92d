#!/bin/sh
# Runs a service where the virtual address is, and nowhere else. keepwatch calls it by `--hook`, as keepalived calls notify
# scripts: INSTANCE, the router id, a state, and a priority. It is called again if it fails. Without systemd, as on OpenWrt:
# /etc/init.d/haproxy start, and stop.

case $3 in
MASTER) systemctl start haproxy ;;
BACKUP | FAULT) systemctl stop haproxy ;;
*)
    echo 'usage: hook.sh INSTANCE ROUTER MASTER|BACKUP|FAULT PRIORITY'
    [ "$1" = --help ] || exit 2
    ;;
esac
