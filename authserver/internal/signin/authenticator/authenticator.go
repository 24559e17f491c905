// Package authenticator makes and checks the codes of authenticator apps (RFC 6238) and recovery codes.
//
// The stores call it within the transaction of a sign-in, the settings when an app is set up.
package authenticator

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"image/png"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/boombuler/barcode"
	"github.com/boombuler/barcode/qr"
	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"

	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// Parameters of the codes. They are the defaults of RFC 6238, because some apps ignore other values.
const (
	period      = 30 * time.Second
	secretBytes = 20
	skew        = 1 // accepted time steps before and after the current one (RFC 6238, section 5.2)
)

var options = hotp.ValidateOpts{Digits: otp.DigitsSix, Algorithm: otp.AlgorithmSHA1}

// RecoveryCodes is how many recovery codes a user gets.
const RecoveryCodes = 10

const recoveryBytes = 10 // 16 characters in base32

var base32Encoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// ErrExists reports that the user has an authenticator app. Nothing was written.
var ErrExists = errors.New("the user has an authenticator app")

// A Status describes the authenticator app of a user.
type Status struct {
	Active        bool
	Created       time.Time
	RecoveryCodes int // unused ones
}

// A Secret is the shared secret of an authenticator app.
type Secret []byte

// NewSecret returns a random secret.
func NewSecret(random io.Reader) (Secret, error) {
	s := make(Secret, secretBytes)
	if _, err := io.ReadFull(random, s); err != nil {
		return nil, fmt.Errorf("make the secret of an authenticator app: %w", err)
	}
	return s, nil
}

// Text returns the secret as users type it: base32 in groups of four.
func (s Secret) Text() string { return grouped(base32Encoding.EncodeToString(s), " ") }

// URL returns the URL that an app reads from a QR code (https://github.com/google/google-authenticator/wiki).
func (s Secret) URL(issuer, account string) string {
	parameters := url.Values{"secret": {base32Encoding.EncodeToString(s)}, "issuer": {issuer}}
	u := url.URL{
		Scheme:   "otpauth",
		Host:     "totp",
		Path:     "/" + issuer + ":" + account,
		RawQuery: strings.ReplaceAll(parameters.Encode(), "+", "%20"), // apps do not read + as a space
	}
	return u.String()
}

const qrSize = 200 // pixels

// QRCode returns URL as a PNG image of 200 × 200 pixels.
func (s Secret) QRCode(issuer, account string) ([]byte, error) {
	code, err := qr.Encode(s.URL(issuer, account), qr.M, qr.Auto)
	if err == nil {
		code, err = barcode.Scale(code, qrSize, qrSize)
	}
	var image bytes.Buffer
	if err == nil {
		err = png.Encode(&image, code)
	}
	if err != nil {
		return nil, errors.New("make a QR code: the e-mail address is too long") // the cause may quote the secret
	}
	return image.Bytes(), nil
}

// Check returns the time step of a valid code. A code of the step last or an earlier one was used already.
func (s Secret) Check(code string, now time.Time, last int64) (step int64, valid bool) {
	code = spelling.Code(code)
	current := now.Unix() / int64(period.Seconds())
	for step = current - skew; step <= current+skew; step++ {
		good, err := hotp.ValidateCustom(code, uint64(step), base32Encoding.EncodeToString(s), options)
		if err == nil && good && step > last {
			return step, true
		}
	}
	return 0, false
}

// Code returns the code of a moment.
func (s Secret) Code(at time.Time) (string, error) {
	step := uint64(at.Unix() / int64(period.Seconds()))
	return hotp.GenerateCodeCustom(base32Encoding.EncodeToString(s), step, options)
}

// NewRecoveryCodes returns recovery codes in lower case, in groups of four characters, and their hashes.
func NewRecoveryCodes(random io.Reader) (codes []credential.Secret, hashes [][]byte, err error) {
	for range RecoveryCodes {
		raw := make([]byte, recoveryBytes)
		if _, err := io.ReadFull(random, raw); err != nil {
			return nil, nil, fmt.Errorf("make a recovery code: %w", err)
		}
		code := grouped(strings.ToLower(base32Encoding.EncodeToString(raw)), "-")
		codes = append(codes, credential.Secret(code))
		hashes = append(hashes, HashRecoveryCode(credential.Secret(code)))
	}
	return codes, hashes, nil
}

// HashRecoveryCode returns the stored hash of a recovery code, as typed or pasted (spelling.Code). A fast hash is
// enough for 80 random bits.
func HashRecoveryCode(code credential.Secret) []byte {
	sum := sha256.Sum256([]byte("recovery code\x00" + spelling.Code(code.Reveal())))
	return sum[:]
}

func grouped(text, separator string) string {
	var groups []string
	for group := range slices.Chunk([]byte(text), 4) {
		groups = append(groups, string(group))
	}
	return strings.Join(groups, separator)
}

// NewBox returns the box that seals secrets for the store.
func NewBox(keys seal.Keys) (*seal.Box, error) { return seal.NewBox(keys, "authenticator secrets") }
