# Stands in for OpenWrt's rules.mk.

INCLUDE_DIR:=$(TOPDIR)/include
INSTALL_DIR:=install -d -m 755
INSTALL_BIN:=install -m 755
INSTALL_CONF:=install -m 600
INSTALL_DATA:=install -m 644
