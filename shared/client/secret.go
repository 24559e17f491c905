package client

import (
	"fmt"
	"log/slog"
)

// Secret is a client secret. It formats as [redacted], so that it does not appear in a log or an error by
// mistake.
type Secret string

const redacted = "[redacted]"

// Reveal returns the plain secret.
func (s Secret) Reveal() string { return string(s) }

// String, Format, LogValue and MarshalText return [redacted] instead of the content.
func (s Secret) String() string               { return redacted }
func (s Secret) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte(redacted)) }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
