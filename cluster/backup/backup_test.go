package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"clustermaster/cluster/fsm"
)

const phrase = "correct horse battery"

func sample(t testing.TB, jobs int) (About, fsm.Saved, []byte) {
	t.Helper()
	about := About{ClusterID: "c", UUID: "u", Master: "m1", Version: "1",
		At: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC), Index: 7,
		Members: []Member{{ID: "m1", Addr: "10.0.0.1:4520"}}}
	state := fsm.Saved{ClusterKey: "-----BEGIN the cluster's key", AES: "the aes key",
		Session: []byte("the session secret"),
		Keys:    []fsm.Key{{ID: "web1", Pub: "pub", State: fsm.KeyAccepted, Index: 5}}}
	var out bytes.Buffer
	w, err := NewWriter(&out, phrase, about, state)
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		if err := w.Add(Job{JID: fmt.Sprint(i), Load: bytes.Repeat([]byte{byte(i)}, 3000),
			Returns: map[string]Return{"web1": {Return: []byte{1}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return about, state, out.Bytes()
}

func TestWhatWasWrittenIsRead(t *testing.T) {
	t.Parallel()
	for _, jobs := range []int{0, 1, 100} { // 100: several chunks
		about, state, file := sample(t, jobs)
		r, err := NewReader(bytes.NewReader(file), phrase)
		if err != nil {
			t.Fatal(err)
		}
		r.About.At = r.About.At.UTC()
		if !reflect.DeepEqual(r.About, about) || r.State.ClusterKey != state.ClusterKey ||
			!reflect.DeepEqual(r.State.Keys[0].ID, "web1") {
			t.Errorf("read %+v %+v", r.About, r.State)
		}
		for i := range jobs {
			if j, err := r.Next(); err != nil || j.JID != fmt.Sprint(i) || len(j.Load) != 3000 ||
				len(j.Returns) != 1 {
				t.Fatalf("job %d: %+v %v", i, j.JID, err)
			}
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("after the last job: %v", err)
		}
		for _, secret := range []string{"the cluster's key", "the aes key", "the session secret",
			phrase, "web1"} {
			if bytes.Contains(file, []byte(secret)) {
				t.Errorf("%q is in the file in clear", secret)
			}
		}
	}
}

func TestChangedFilesAreRefused(t *testing.T) {
	t.Parallel()
	_, _, file := sample(t, 50)
	chunk := chunkSize + 16
	swapped := bytes.Clone(file)
	copy(swapped[headerSize:], file[headerSize+chunk:headerSize+2*chunk])
	copy(swapped[headerSize+chunk:], file[headerSize:headerSize+chunk])
	flip := func(i int) []byte {
		b := bytes.Clone(file)
		b[i] ^= 1
		return b
	}
	for _, tt := range []struct {
		name   string
		file   []byte
		phrase string
		want   error
	}{
		{"another passphrase", file, phrase + "!", ErrPassphrase},
		{"empty", nil, phrase, ErrNoBackup},
		{"another file", bytes.Repeat([]byte("text "), 100), phrase, ErrNoBackup},
		{"header cut", file[:headerSize-1], phrase, ErrNoBackup},
		{"nothing after the header", file[:headerSize], phrase, ErrPassphrase},
		{"cost without bounds",
			func() []byte { b := bytes.Clone(file); b[len(magic)+4] = 0xff; return b }(), phrase,
			ErrNoBackup},
		{"cost changed", flip(len(magic) + 3), phrase, ErrPassphrase},
		{"first chunk changed", flip(headerSize + 10), phrase, ErrPassphrase},
		{"last byte changed", flip(len(file) - 1), phrase, ErrCutShort},
		{"cut in a chunk", file[:len(file)-1], phrase, ErrCutShort},
		{"cut between chunks", file[:headerSize+chunk], phrase, ErrPassphrase},
		{"cut between later chunks", file[:headerSize+2*chunk], phrase, ErrCutShort},
		{"chunks swapped", swapped, phrase, ErrPassphrase},
		{"more at the end", append(bytes.Clone(file), 0), phrase, ErrCutShort},
	} {
		if _, _, err := Verify(bytes.NewReader(tt.file), tt.phrase); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if _, n, err := Verify(bytes.NewReader(file), phrase); err != nil || n != 50 {
		t.Errorf("the whole file: %d jobs, %v", n, err)
	}
}

func TestShortPassphraseIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := NewWriter(io.Discard, "short", About{}, fsm.Saved{}); err == nil ||
		!strings.Contains(err.Error(), "at least 12") {
		t.Errorf("got %v", err)
	}
}

// A file that ends early inside the sealed part, which only who knows the passphrase can make, is
// an error too.
func TestSealedButIncompleteIsRefused(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w, err := NewWriter(&out, phrase, About{}, fsm.Saved{})
	if err == nil {
		err = errors.Join(w.buf.Flush(), w.seal.finish())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Verify(&out, phrase); !errors.Is(err, ErrCutShort) {
		t.Errorf("got %v", err)
	}
}

func FuzzVerify(f *testing.F) {
	_, _, file := sample(f, 1)
	f.Add(file)
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		// the derivation's cost is tested above; here it would be all that is measured
		if len(b) >= headerSize {
			b = bytes.Clone(b)
			copy(b, file[:headerSize-prefixSize-saltSize])
			copy(b[len(magic):], []byte{0, 0, 0, 1, 0, 0, 0, 8, 1})
		}
		if _, n, err := Verify(bytes.NewReader(b), phrase); err == nil {
			t.Errorf("%d jobs read from bytes that nobody sealed", n)
		}
	})
}
