//go:build unix

package keystore

import "syscall"

// noFollow makes open refuse a symlink. It does not block, so that a pipe in place of a key can't
// hang the master.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
