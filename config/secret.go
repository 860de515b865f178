package config

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is text that logs, dumps and errors never show. Reveal returns it.
type Secret string

const redacted = "[redacted]"

// Reveal returns the text itself, for code that uses it as a key.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string { return redacted }

// Format prints the same for every verb and flag.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText covers encoding/json and similar encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
