package auth

import (
	"crypto/md5"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/GehirnInc/crypt"
	"github.com/GehirnInc/crypt/apr1_crypt"
	"github.com/GehirnInc/crypt/sha256_crypt"
	"github.com/GehirnInc/crypt/sha512_crypt"
	"golang.org/x/crypto/bcrypt"
)

// Bounds of the work that a line of a file can ask for.
const (
	maxBcryptCost = 14
	maxRounds     = 1_000_000
	maxCrypted    = 512 // bytes of a password that all rounds go over
)

var errScheme = errors.New("this kind of password is not supported; make it anew with htpasswd -B")

// htpasswd looks for a user in a file as Apache's htpasswd writes it. The first line of a user
// counts.
func htpasswd(content []byte, user, password string) (bool, error) {
	hash, found, err := record(content, user+":", 2)
	if err != nil || !found {
		return false, err
	}
	return checkHash(hash, password)
}

// htdigest looks for a user of a realm in a file as Apache's htdigest writes it.
func htdigest(content []byte, user, realm, password string) (bool, error) {
	hash, found, err := record(content, user+":"+realm+":", 3)
	if err != nil || !found {
		return false, err
	}
	sum := md5.Sum([]byte(user + ":" + realm + ":" + password))
	return same(strings.ToLower(hash), hex.EncodeToString(sum[:])), nil
}

// record finds the last field of the line that begins so. Every line has so many fields; empty ones
// and comments are passed over.
func record(content []byte, begin string, fields int) (last string, found bool, err error) {
	if strings.Count(begin, ":") != fields-1 {
		return "", false, nil // a colon in the user's name
	}
	for n, line := range lines(content) {
		line = strings.TrimRight(line, " \t\r\v\f")
		if t := strings.TrimLeft(line, " \t"); t == "" || t[0] == '#' {
			continue
		}
		if strings.Count(line, ":") != fields-1 {
			return "", false, fmt.Errorf("line %d has not %d fields; take it out", n+1, fields)
		}
		if rest, ok := strings.CutPrefix(line, begin); ok && !found {
			last, found = rest, true
		}
	}
	return last, found, nil
}

// desCrypt looks as DES hashes do, which nobody should take for a password.
var desCrypt = regexp.MustCompile(`^[./0-9A-Za-z]{13}$`)

// checkHash compares a password with what htpasswd, passlib or crypt(3) made of it.
func checkHash(hash, password string) (bool, error) {
	by := func(c crypt.Crypter) (bool, error) {
		return c.Verify(hash,
			[]byte(password)) == nil, nil
	}
	switch {
	case strings.HasPrefix(hash, "$2"):
		cost, err := bcrypt.Cost([]byte(hash))
		if err != nil || cost > maxBcryptCost {
			return false, fmt.Errorf("bcrypt of cost %d: %w", cost, errScheme)
		}
		if len(password) > 72 { // what bcrypt sees of it, as passlib and Apache have it
			password = password[:72]
		}
		return bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil, nil
	case strings.HasPrefix(hash, "$apr1$"):
		return by(apr1_crypt.New())
	case strings.HasPrefix(hash, "$5$"), strings.HasPrefix(hash, "$6$"):
		if rest, ok := strings.CutPrefix(hash[3:], "rounds="); ok {
			number, salted, _ := strings.Cut(rest, "$")
			n, err := strconv.Atoi(number)
			if err != nil || n > maxRounds {
				return false, fmt.Errorf("%s rounds: %w", number, errScheme)
			}
			// the library does not write these, and so would not know them again
			if n == sha512_crypt.RoundsDefault {
				hash = hash[:3] + salted
			}
		}
		if len(password) > maxCrypted {
			return false, nil
		}
		if hash[1] == '5' {
			return by(sha256_crypt.New())
		}
		return by(sha512_crypt.New())
	case strings.HasPrefix(hash, "{SHA}"):
		sum := sha1.Sum([]byte(password))
		return same(hash[5:], base64.StdEncoding.EncodeToString(sum[:])), nil
	case strings.HasPrefix(hash, "$"), strings.HasPrefix(hash, "{"), desCrypt.MatchString(hash),
		hash == "":
		return false, errScheme
	}
	return same(hash, password), nil
}
