# Two commands do everything: `make up` and `make test`. The rest is named in `make help`.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# rustup installs here; a fresh shell may not have it in its PATH yet.
export PATH := $(HOME)/.cargo/bin:$(PATH)

# What `make up` starts, and where.
DIR ?= ./run
MOUNT ?= $(DIR)/mnt
SKEP := target/release/skep

# What apt must give: a linker for cargo, and fusermount3 for mounts by users.
PACKAGES := build-essential fuse3

.PHONY: help up down build test check prerequisites packages toolchain

help:
	@echo "make up      install what is needed, build, start a cluster in $(DIR), mount it at $(MOUNT)"
	@echo "make down    unmount and stop it; the files stay in $(DIR)"
	@echo "make test    every test (what CI runs)"
	@echo "make check   formatting, lints, rules of the house, licences: before a commit"
	@echo "make build   the release build only"

up: prerequisites build
	@$(SKEP) up --dir "$(DIR)" --mount "$(MOUNT)"
	@echo
	@echo "Skep runs in $(DIR) and is mounted at $(MOUNT). Try:"
	@echo "  cp -r crates $(MOUNT)/ && ls -l $(MOUNT)/crates"
	@echo "  $(SKEP) status --dir $(DIR)"
	@echo "  $(SKEP) entry info $(MOUNT)/crates"
	@echo "  make down"

down:
	@$(SKEP) down --dir "$(DIR)"

build: toolchain
	@cargo build --release --locked --package skep

# Every step and its command stand in xtask/src/ci; `cargo xtask ci --list` prints them.
test: toolchain
	@cargo xtask ci

check: toolchain
	@steps="fmt clippy tidy"; \
	if cargo deny --version >/dev/null 2>&1; then \
		steps="$$steps deny"; \
	else \
		echo "cargo-deny is not installed: licences are not checked (cargo install cargo-deny --locked)"; \
	fi; \
	cargo xtask ci $$steps

prerequisites: packages toolchain

packages:
	@missing=""; \
	for package in $(PACKAGES); do \
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
	fi; \
	if [ ! -e /dev/fuse ]; then \
		echo "make: /dev/fuse is missing; as root, run: modprobe fuse" >&2; exit 1; \
	fi

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
