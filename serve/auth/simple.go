package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
)

// auto accepts everybody. It is for tests.
type auto struct{}

func (auto) check(context.Context, string, string) (known, bool, error) {
	return known{},
		true, nil
}

// sharedSecret accepts any user with the option sharedsecret as password.
type sharedSecret string

func (s sharedSecret) check(_ context.Context, _, password string) (known, bool, error) {
	return known{}, same(string(s), password), nil
}

// same compares secrets. Its time does not reveal how much of them is equal, or how long they are.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
