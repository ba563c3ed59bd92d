#!/bin/sh
# Runs a service where the virtual address is, and nowhere else. For `--hook` of keepwatch, which calls it as
# keepalived calls notify scripts: INSTANCE, the router id, what this router has become, and a priority. If it
# fails, it is called again. Where there is no systemd, as on OpenWrt: /etc/init.d/haproxy start, and stop.

case $3 in
MASTER) systemctl start haproxy ;;
BACKUP | FAULT) systemctl stop haproxy ;;
esac
