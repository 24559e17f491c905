package credential

import (
	"fmt"
	"log/slog"
)

// Secret is text that must not be seen in a log, an error or a debugger's print: it formats as [redacted].
// Reveal is the one way to its content.
type Secret string

const redacted = "[redacted]"

// Reveal returns the secret itself. Call it where the secret is handed to its owner or compared, nowhere else.
func (s Secret) Reveal() string { return string(s) }

// String, Format, LogValue and MarshalText keep the content out of every printer.
func (s Secret) String() string               { return redacted }
func (s Secret) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte(redacted)) }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalText lets configuration be read into a Secret.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	return nil
}
