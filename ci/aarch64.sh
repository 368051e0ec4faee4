#!/usr/bin/env bash
# Runs tests for aarch64 Linux in an emulator.
exec "$(dirname "$0")/emulated.sh" aarch64
