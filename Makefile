# Two commands do everything: `make up` and `make test`. The rest is named in `make help`.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# rustup installs here; a fresh shell may not have it in its PATH yet.
export PATH := $(HOME)/.cargo/bin:$(PATH)

# What `make up` starts, and where.
DIR ?= ./run
MOUNT ?= $(DIR)/mnt
# `dist` is what packages are made of: a little faster, longer to build.
PROFILE ?= release
SKEP := target/$(PROFILE)/skep

# What apt must give: a linker for cargo, and fusermount3 for mounts by users.
PACKAGES := build-essential fuse3 acl attr iproute2 python3 util-linux
# What the tests need besides: a browser for the survey's report, readers of its PDF, and fio to compare with.
TEST_PACKAGES := chromium-headless-shell fio fonts-dejavu-core poppler-utils

# Where `make install` puts everything; DESTDIR goes before all of it, for packages.
PREFIX ?= /usr/local
DESTDIR ?=
UNITS ?= $(PREFIX)/lib/systemd/system
# mount(8) looks for mount.skep here and nowhere else, and for mount.fuse.skep when it goes by the kernel's list of mounts.
SBIN ?= /sbin

.PHONY: help up down build install uninstall test check prerequisites packages test-packages bare-metal toolchain

help:
	@echo "make up      install what is needed, build, start a cluster in $(DIR), mount it at $(MOUNT)"
	@echo "make down    unmount and stop it; the files stay in $(DIR)"
	@echo "make test    every test (what CI runs)"
	@echo "make check   formatting, lints, rules of the house, licences: before a commit"
	@echo "make build   the release build only"
	@echo "make install the program, mount.skep, units, manual pages, completions below PREFIX=$(PREFIX)"

up: prerequisites build
	@$(SKEP) up --dir "$(DIR)"$(if $(filter file,$(origin MOUNT)),, --mount "$(MOUNT)")
	@echo "  make down$(if $(filter file,$(origin DIR)),, DIR=$(DIR))"

down:
	@$(SKEP) down --dir "$(DIR)"

build: toolchain
	@cargo build --profile $(PROFILE) --locked --package skep

# Needs no compiler when the release build is there already: sudo make install.
install:
	@test -x $(SKEP) || $(MAKE) build
	@install -D -m 755 $(SKEP) "$(DESTDIR)$(PREFIX)/bin/skep"
	@install -d "$(DESTDIR)$(SBIN)" "$(DESTDIR)$(UNITS)" "$(DESTDIR)/etc/skep"
	@ln -sf "$(PREFIX)/bin/skep" "$(DESTDIR)$(SBIN)/mount.skep"
	@ln -sf "$(PREFIX)/bin/skep" "$(DESTDIR)$(SBIN)/mount.fuse.skep"
	@for unit in packaging/systemd/*.service; do \
		sed 's|/usr/local/bin/skep|$(PREFIX)/bin/skep|' "$$unit" > "$(DESTDIR)$(UNITS)/$${unit##*/}"; \
	done
	@share="$(DESTDIR)$(PREFIX)/share"; \
	install -d "$$share/man/man1" "$$share/man/man8" "$$share/doc/skep" "$$share/zsh/site-functions" \
		"$$share/bash-completion/completions" "$$share/fish/vendor_completions.d"; \
	$(SKEP) man "$$share/man/man1"; \
	mv "$$share/man/man1/mount.skep.8" "$$share/man/man8/"; \
	$(SKEP) completions bash > "$$share/bash-completion/completions/skep"; \
	$(SKEP) completions zsh > "$$share/zsh/site-functions/_skep"; \
	$(SKEP) completions fish > "$$share/fish/vendor_completions.d/skep.fish"; \
	install -m 644 LICENSE THIRD-PARTY.md "$$share/doc/skep/"; \
	for service in mgmtd metad storaged mount; do \
		$(SKEP) config template $$service > "$$share/doc/skep/$$service.toml"; \
	done
	@echo "installed below $(DESTDIR)$(PREFIX); commented configurations are in $(PREFIX)/share/doc/skep"

# Configuration, keys and data stay.
uninstall:
	@rm -f "$(DESTDIR)$(SBIN)"/mount.{skep,fuse.skep} "$(DESTDIR)$(PREFIX)/bin/skep" "$(DESTDIR)$(UNITS)"/skep-{mgmtd,metad,storaged,mount}@.service
	@share="$(DESTDIR)$(PREFIX)/share"; \
	rm -rf "$$share/doc/skep"; \
	rm -f "$$share/man/man1"/skep.1 "$$share/man/man1"/skep-*.1 "$$share/man/man8/mount.skep.8" \
		"$$share/bash-completion/completions/skep" "$$share/zsh/site-functions/_skep" \
		"$$share/fish/vendor_completions.d/skep.fish"

# Every step and its command stand in xtask/src/ci; `cargo xtask ci --list` prints them. One build of
# everything needs no state for the next one, which would be most of what it leaves on the disk. Clippy's compiler builds
# and lints at once (xtask/src/build.rs).
test: export CARGO_INCREMENTAL ?= 0
test: export RUSTC_WORKSPACE_WRAPPER ?= clippy-driver
test: prerequisites test-packages bare-metal
	@cargo xtask ci

check: toolchain
	@steps="fmt clippy tidy"; \
	if cargo deny --version >/dev/null 2>&1; then \
		steps="$$steps deny"; \
	else \
		echo "cargo-deny is not installed: licences are not checked (cargo install cargo-deny --locked)"; \
	fi; \
	cargo xtask ci $$steps

# Installs those of the packages named in $(1) that are not there yet.
define install-missing
missing=""; \
for package in $(1); do \
	dpkg-query -W -f '$${db:Status-Status}' "$$package" 2>/dev/null | grep -qx installed \
		|| missing="$$missing $$package"; \
done; \
if [ -n "$$missing" ]; then \
	echo "installing:$$missing"; \
	become=""; \
	if [ "$$(id -u)" != 0 ]; then \
		command -v sudo >/dev/null \
			|| { echo "make: as root, run: apt-get install$$missing" >&2; exit 1; }; \
		become=sudo; \
	fi; \
	$$become apt-get update -q; \
	$$become env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$missing; \
fi
endef

prerequisites: packages toolchain

packages:
	@$(call install-missing,$(PACKAGES))
	@if [ ! -e /dev/fuse ]; then \
		echo "make: /dev/fuse is missing; as root, run: modprobe fuse" >&2; exit 1; \
	fi

test-packages:
	@$(call install-missing,$(TEST_PACKAGES))

# For what has nothing below it. Where it is not to be had, that step links for this machine instead, and says so.
bare-metal: toolchain
	@timeout 120 rustup target add x86_64-unknown-none >/dev/null 2>&1 || true

toolchain:
	@command -v cargo >/dev/null || { \
		echo "make: cargo is missing. Install rustup from https://rustup.rs, then run make again;" >&2; \
		echo "      the right toolchain (rust-toolchain.toml) comes by itself." >&2; \
		exit 1; \
	}
	@cargo --version >/dev/null || { \
		echo "make: cargo does not run; 'rustup toolchain install' in this directory fetches its toolchain" >&2; \
		exit 1; \
	}
