//go:build !unix

package keystore

import "io/fs"

const noFollow = 0

// OwnAs does nothing here.
func OwnAs(string, fs.FileInfo) error { return nil }
