package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"syscall"
)

// A Trouble is the reason why there was no response.
type Trouble string

// The troubles. Each has a different remedy.
const (
	NoName      Trouble = "name"
	Refused     Trouble = "refused"
	Unreachable Trouble = "unreachable"
	Certificate Trouble = "certificate"
	NoTLS       Trouble = "tls"
	Late        Trouble = "late"
	Large       Trouble = "large"
	GivenUp     Trouble = "given up"
	Broken      Trouble = "broken"
)

// Diagnose returns the Trouble of an error of Send.
func Diagnose(err error) Trouble {
	if errors.Is(err, ErrTooLarge) {
		return Large
	}
	if errors.Is(err, ErrTooLate) || errors.Is(err, syscall.ETIMEDOUT) {
		return Late
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return GivenUp
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return NoName
	}
	if badCertificate(err) {
		return Certificate
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return NoTLS
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return NoTLS
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return NoTLS
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return Refused
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return Unreachable
	}
	return Broken
}

func badCertificate(err error) bool {
	_, verification := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	_, name := errors.AsType[x509.HostnameError](err)
	return verification || authority || invalid || name
}
