# Two commands do everything on a fresh Debian or Ubuntu with Python 3.11+: `make demo` and `make test`.
# Set-up needs no root: uv is found, or installed below build/ in one of three ways, and makes .venv from the committed lock.

PYTHON ?= python3
ARGS ?=
UV := $(shell command -v uv 2>/dev/null || echo build/uv/bin/uv)
VENV_READY := .venv/.ready

# Networks with a certificate authority of their own put it where the system keeps certificates.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt),)
export UV_SYSTEM_CERTS ?= 1
endif

.PHONY: demo test check unit long bench clean help

help:
	@echo "make demo [ARGS=--once]  a story of five incidents on an emulated cluster, with the console to click in"
	@echo "make test                linters, types, import contracts and all tests"
	@echo "make bench               the figures of docs/figures.md, measured again"
	@echo "make long                what takes longer than a review: property runs and crash sweeps at full length"

demo: $(VENV_READY)
	@.venv/bin/sre-sandbox demo $(ARGS)

test: check unit

check: $(VENV_READY)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports
	.venv/bin/mypy

unit: $(VENV_READY)
	.venv/bin/pytest -m "not long" -n 2 --dist loadfile $(ARGS)

long: $(VENV_READY)
	.venv/bin/pytest -m long --timeout 7200 $(ARGS)

bench: $(VENV_READY)
	.venv/bin/python -m bench $(ARGS)

$(VENV_READY): pyproject.toml uv.lock | $(UV)
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(UV) sync --quiet --frozen --all-extras --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	@touch $@

build/uv/bin/uv:
	@PYTHON="$(PYTHON)" sh deploy/get-uv.sh build/uv

clean:
	rm -rf .venv build
