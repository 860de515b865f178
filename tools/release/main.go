// Command release writes the bill of materials (SBOM) of a built program: CycloneDX 1.6, JSON. It
// reads what the Go linker wrote into the program, so the SBOM describes exactly these bytes.
//
// Lives here: the SBOM, and the scripts that make, sign, verify and reproduce a release. Does not:
// look anything up on a network.
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("usage: release PROGRAM VERSION SECONDS-SINCE-1970; it prints the " +
			"program's SBOM")
	}
	seconds, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return fmt.Errorf("the time is %q; give the seconds since 1970", args[2])
	}
	program, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	text, err := sbom(program, args[1], time.Unix(seconds, 0))
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	_, err = out.Write(text)
	return err
}

// document is the part of CycloneDX 1.6 that the command writes.
type document struct {
	Schema       string       `json:"$schema"`
	BOMFormat    string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	SerialNumber string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// sbom lists the modules in a program. The same program, version and time give the same bytes.
func sbom(program []byte, version string, at time.Time) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("not a program that Go built: %w", err)
	}
	sum := sha256.Sum256(program)
	self := component{Type: "application", Ref: info.Main.Path, Name: info.Main.Path,
		Version: version, Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}}}
	for _, s := range info.Settings {
		if s.Key == "GOARCH" || s.Key == "GOOS" || s.Key == "CGO_ENABLED" || s.Key == "-trimpath" {
			self.Properties = append(self.Properties, property{"go:" + s.Key, s.Value})
		}
	}
	d := document{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", BOMFormat: "CycloneDX",
		SpecVersion: "1.6", SerialNumber: "urn:uuid:" + uuidOf(sum), Version: 1,
		Metadata: metadata{Timestamp: at.UTC().Format(time.RFC3339), Component: self},
	}
	toolchain := strings.TrimPrefix(info.GoVersion, "go")
	d.Components = []component{{Type: "library", Ref: "pkg:golang/std@" + toolchain, Name: "std",
		Version: toolchain, PURL: "pkg:golang/std@" + toolchain}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		purl := "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
		c := component{Type: "library", Ref: purl, Name: m.Path, Version: m.Version, PURL: purl}
		// go.sum's hash: the SHA-256 of the list of the module's files
		if h1, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
			raw, err := base64.StdEncoding.DecodeString(h1)
			if err != nil {
				return nil, fmt.Errorf("sum of %s: %w", m.Path, err)
			}
			c.Hashes = []hash{{"SHA-256", hex.EncodeToString(raw)}}
		}
		d.Components = append(d.Components, c)
	}
	refs := make([]string, len(d.Components))
	for i, c := range d.Components {
		refs[i] = c.Ref
	}
	d.Dependencies = []dependency{{self.Ref, refs}}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// uuidOf makes a UUID of the form of version 8 (RFC 9562) from a hash.
func uuidOf(sum [sha256.Size]byte) string {
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	h := hex.EncodeToString(sum[:16])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}
