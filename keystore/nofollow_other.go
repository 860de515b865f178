//go:build !unix

package keystore

const noFollow = 0
