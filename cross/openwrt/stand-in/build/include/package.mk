# Stands in for OpenWrt's package.mk: `make install TREE=… DL_DIR=… BUILD_DIR=… PROGRAM=… USERS=…` unpacks the source, if it has the
# right hash, and installs the program that was built from it, with its files. Its scripts become TREE.postinst and
# TREE.postrm.

PKG_BUILD_DIR:=$(BUILD_DIR)/$(PKG_NAME)-$(PKG_VERSION)
PKG_INSTALL_DIR:=$(BUILD_DIR)/installed

define BuildPackage
$(eval $(Package/$(1)))
ifneq ($$(DEPENDS),$$(RUST_ARCH_DEPENDS))
  $$(error it depends on $$(DEPENDS))
endif
ifneq ($$(USERID),$(USERS))
  $$(error its users are $$(USERID))
endif
install:
	echo '$(PKG_HASH)  $(DL_DIR)/$(PKG_SOURCE)' | sha256sum --quiet -c
	tar -xzf $(DL_DIR)/$(PKG_SOURCE) -C $(BUILD_DIR)
	test -f $(PKG_BUILD_DIR)/Cargo.lock
	cd $(PKG_BUILD_DIR) && ls $(PKG_LICENSE_FILES)
	$(INSTALL_DIR) $(PKG_INSTALL_DIR)/bin
	$(INSTALL_BIN) $(PROGRAM) $(PKG_INSTALL_DIR)/bin/keepwatch
	$(call Package/$(1)/install,$(TREE))
	$$(file >$(TREE).postinst,$$(Package/$(1)/postinst))
	$$(file >$(TREE).postrm,$$(Package/$(1)/postrm))
endef
