// Package hashtype has the hash functions that the option hash_type names. A leaf.
package hashtype

import (
	"crypto/md5"  // hash_type is the operator's choice
	"crypto/sha1" // hash_type is the operator's choice
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"
)

// Of returns the function of that name; "" is sha256.
func Of(name string) (func() hash.Hash, error) {
	switch name {
	case "md5":
		return md5.New, nil
	case "sha1":
		return sha1.New, nil
	case "sha224":
		return sha256.New224, nil
	case "sha256", "":
		return sha256.New, nil
	case "sha384":
		return sha512.New384, nil
	case "sha512":
		return sha512.New, nil
	}
	return nil, fmt.Errorf("hash_type %q: not one of md5, sha1, sha224, sha256, sha384, sha512",
		name)
}
