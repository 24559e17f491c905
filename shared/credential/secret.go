package credential

import (
	"fmt"
	"log/slog"
)

// Secret is text that must not appear in a log, an error or a debugger: it formats as [redacted]. Only Reveal
// returns its content.
type Secret string

const redacted = "[redacted]"

// Reveal returns the plain secret. Call it only where the secret is handed to its owner or compared.
func (s Secret) Reveal() string { return string(s) }

// String, Format, LogValue and MarshalText return [redacted].
func (s Secret) String() string               { return redacted }
func (s Secret) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte(redacted)) }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalText implements encoding.TextUnmarshaler, so that configuration can be read into a Secret.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	return nil
}
